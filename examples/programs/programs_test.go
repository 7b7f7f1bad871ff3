package programs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/api"
	setup "github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// workers starts every worker of pool.toml on a host with a session store.
func workers(t *testing.T) ([]*process.Process, sessions.Store) {
	t.Helper()
	store := embedded.InMemory(sessions.Config{})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	calls := sessions.HostCalls{Store: store}
	host := setup.Host(t, func(ctx context.Context, call process.HostCall) ([]byte, error) {
		result, err := calls.Serve(ctx, call.Headers["tempool-session"], call.Method, call.Payload)
		var coded *api.Error
		if errors.As(err, &coded) {
			return nil, &wire.RemoteError{Code: string(coded.Code), Message: coded.Message}
		}
		return result, err
	})
	pool, err := spec.Load("pool.toml")
	require.NoError(t, err)
	started := make([]*process.Process, pool.Pool.Size)
	for slot := range started {
		started[slot], err = host.Start(t.Context(),
			process.Launch{Worker: fmt.Sprintf("programs/%d", slot), Incarnation: 1, Spec: pool})
		require.NoError(t, err)
	}
	return started, store
}

// call makes a call with a session.
func call(t *testing.T, p *process.Process, session, method string, params, result any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setup.Timeout)
	defer cancel()
	request := setup.Request(t, method, params)
	request.Headers = map[string]string{"tempool-session": session}
	response, err := p.Conn().Call(ctx, request)
	if err == nil && result != nil {
		require.NoError(t, json.Unmarshal(response.Payload, result))
	}
	return err
}

type params map[string]any

func TestAProgramOfOneWorkerRunsOnAllOthers(t *testing.T) {
	all, store := workers(t)
	var trained struct{ Samples, Words int64 }
	require.NoError(t, call(t, all[0], "s1", "train", params{"id": "which", "labels": []string{"email", "asyncio"}},
		&trained))
	require.Positive(t, trained.Words)
	require.Equal(t, trained.Samples, all[0].Counts()["samples"], "the program's counters reach the host")
	setup.Kill(t, all[0]) // the program outlives it

	texts := []string{"loop = get_running_loop(); await future; transport.close()",
		"parse the MIME header of the message's payload"}
	for _, p := range all[1:] {
		var labels []string
		require.NoError(t, call(t, p, "s1", "classify", params{"id": "which", "texts": texts}, &labels))
		require.Equal(t, []string{"asyncio", "email"}, labels, p.Worker())
	}
	session, err := store.Get(t.Context(), "s1")
	require.NoError(t, err)
	require.JSONEq(t, fmt.Sprint(len(texts)*(len(all)-1)), string(session.Data["classified"]))
	require.JSONEq(t, fmt.Sprintf(`{"program":"which","by":"programs/0","on":%d}`, trained.Samples),
		string(session.Data["trained"]))
}

func TestConcurrentCallsLoseNoChangeOfTheSession(t *testing.T) {
	all, store := workers(t)
	require.NoError(t, call(t, all[0], "s1", "train", params{"id": "which", "labels": []string{"http", "xml"}}, nil))
	const rounds = 10
	done := make(chan error, len(all))
	for _, p := range all {
		go func() {
			var err error
			for range rounds {
				err = errors.Join(err, call(t, p, "s1", "classify", params{"id": "which", "texts": []string{"x"}}, nil))
			}
			done <- err
		}()
	}
	for range all {
		require.NoError(t, <-done)
	}
	session, err := store.Get(t.Context(), "s1")
	require.NoError(t, err)
	require.JSONEq(t, fmt.Sprint(rounds*len(all)), string(session.Data["classified"]))
}

func TestAProgramBelongsToItsSession(t *testing.T) {
	all, _ := workers(t)
	require.NoError(t, call(t, all[0], "mine", "train", params{"id": "which", "labels": []string{"http"}}, nil))
	missing := func(session string) {
		var failure *wire.RemoteError
		require.ErrorAs(t, call(t, all[1], session, "classify", params{"id": "which", "texts": []string{}}, nil), &failure)
		require.Equal(t, "program_not_found", failure.Code)
		require.Equal(t, "ProgramNotFound", failure.Type)
	}
	missing("yours")
	require.NoError(t, call(t, all[2], "mine", "forget", params{"id": "which"}, nil))
	missing("mine")
}
