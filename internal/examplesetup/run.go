package examplesetup

import (
	"context"
	"encoding/json"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// Patience bounds every wait of the tests; only a failing test waits so long.
const Patience = 30 * time.Second

// Host returns a Supervisor that is closed with the test. The test binary's TestMain must begin with process.RunReaperIfAsked.
func Host(t testing.TB) *process.Supervisor {
	t.Helper()
	return HostThatAnswers(t, nil)
}

// HostThatAnswers is Host with what answers the workers' host calls.
func HostThatAnswers(t testing.TB, hostCall func(context.Context, process.HostCall) ([]byte, error)) *process.Supervisor {
	t.Helper()
	s, err := process.Open(t.Context(), process.Config{
		StateDir: t.TempDir(), HostID: "examples", HostCall: hostCall, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		require.NoError(t, s.Close(ctx))
	})
	return s
}

// Start runs an incarnation of the pool's worker 0 and fails the test if it does not become ready.
func Start(t testing.TB, s *process.Supervisor, pool spec.Spec, incarnation int64) *process.Process {
	t.Helper()
	p, err := s.Start(t.Context(), process.Launch{Worker: pool.Pool.Name + "/0", Incarnation: incarnation, Spec: pool})
	require.NoError(t, err)
	return p
}

// Request is a request with params as JSON.
func Request(t testing.TB, method string, params any) wire.Request {
	t.Helper()
	payload, err := json.Marshal(params)
	require.NoError(t, err)
	return wire.Request{Method: method, Payload: payload}
}

// Call makes one call that must succeed and decodes its result, unless result is nil.
func Call(t testing.TB, p *process.Process, method string, params, result any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	response, err := p.Conn().Call(ctx, Request(t, method, params))
	require.NoError(t, err)
	if result != nil {
		require.NoError(t, json.Unmarshal(response.Payload, result), "the result of %s: %s", method, response.Payload)
	}
}

// GiveUp makes a call and gives it up as soon as it is in flight. It returns when the caller has its answer or error, whichever came first.
func GiveUp(t testing.TB, p *process.Process, method string, params any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	answered := make(chan error, 1)
	request := Request(t, method, params)
	go func() {
		_, err := p.Conn().Call(ctx, request)
		answered <- err
	}()
	for p.Conn().InFlight() == 0 {
		select {
		case err := <-answered:
			answered <- err
			return
		case <-p.Done():
			require.Fail(t, "the worker ended")
		case <-time.After(100 * time.Microsecond):
		}
	}
	cancel()
	err := <-answered
	t.Logf("the call that was given up ended with: %v", err)
	if err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
}

// KillFromOutside kills the server as anybody could, and returns what the Supervisor reports about its end.
func KillFromOutside(t testing.TB, p *process.Process) process.Exit {
	t.Helper()
	require.NoError(t, syscall.Kill(p.Info().PID, syscall.SIGKILL))
	return Ends(t, p)
}

// Ends waits until a process is gone, and returns how it ended.
func Ends(t testing.TB, p *process.Process) process.Exit {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(Patience):
		require.Fail(t, "the process did not end")
	}
	return p.Exit()
}
