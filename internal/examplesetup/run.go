package examplesetup

import (
	"context"
	"encoding/json"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// Timeout bounds every wait of the tests; only a failing test waits that long.
const Timeout = 3 * time.Minute

// Host returns a Supervisor with a handler for the workers' host calls, nil for none. It is closed at the end of the
// test.
func Host(t testing.TB, hostCall func(context.Context, process.HostCall) ([]byte, error)) *process.Supervisor {
	t.Helper()
	s, err := process.Open(t.Context(), process.Config{
		StateDir: t.TempDir(), HostID: "examples", HostCall: hostCall, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		defer cancel()
		require.NoError(t, s.Close(ctx))
	})
	return s
}

// Start starts an incarnation of the pool's worker 0 and fails the test if it does not become ready.
func Start(t testing.TB, s *process.Supervisor, pool spec.Spec, incarnation int64) *process.Process {
	t.Helper()
	p, err := s.Start(t.Context(), process.Launch{Worker: pool.Pool.Name + "/0", Incarnation: incarnation, Spec: pool})
	require.NoError(t, err)
	return p
}

// Request returns a request with params as JSON.
func Request(t testing.TB, method string, params any) wire.Request {
	t.Helper()
	payload, err := json.Marshal(params)
	require.NoError(t, err)
	return wire.Request{Method: method, Payload: payload}
}

// Call makes a call that must succeed and decodes its result, unless result is nil.
func Call(t testing.TB, p *process.Process, method string, params, result any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	response, err := p.Conn().Call(ctx, Request(t, method, params))
	require.NoError(t, err)
	if result != nil {
		require.NoError(t, json.Unmarshal(response.Payload, result), "the result of %s: %s", method, response.Payload)
	}
}

// Cancel makes a call and cancels it as soon as it is in flight. It returns when the call has returned.
func Cancel(t testing.TB, p *process.Process, method string, params any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	request := Request(t, method, params)
	var err error
	answered := sleep.Done(func() { _, err = p.Conn().Call(ctx, request) })
	require.Eventually(t, func() bool { return p.Conn().InFlight() > 0 || sleep.Ended(answered) }, Timeout,
		100*time.Microsecond)
	cancel()
	<-answered
	t.Logf("the cancelled call returned: %v", err)
	if err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
}

// Kill sends SIGKILL to the process and returns the exit that the Supervisor reports.
func Kill(t testing.TB, p *process.Process) process.Exit {
	t.Helper()
	require.NoError(t, syscall.Kill(p.Info().PID, syscall.SIGKILL))
	require.False(t, sleep.For(p.Done(), Timeout), "the process did not exit")
	return p.Exit()
}
