package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	setup "github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start builds the program in a copy of this folder and starts it as a worker that has a session store.
func start(t *testing.T) *process.Process {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "search"), ".").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "texts"), os.DirFS("texts")))
	pool, err := os.ReadFile("pool.toml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pool.toml"), pool, 0o600))
	s, err := spec.Load(filepath.Join(dir, "pool.toml"))
	require.NoError(t, err)

	store := embedded.InMemory(sessions.Config{})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	calls := sessions.HostCalls{Store: store, TTL: time.Hour, AnonymousTTL: time.Minute}
	host := setup.Host(t, func(ctx context.Context, call process.HostCall) ([]byte, error) {
		return calls.Serve(ctx, call.Headers["tempool-session"], call.Method, call.Payload)
	})
	return setup.Start(t, host, s, 1)
}

func TestTheExampleSearches(t *testing.T) {
	p := start(t)
	find := func(q query) (found []line, err error) {
		request := setup.Request(t, "find", q)
		request.Headers = map[string]string{"tempool-session": "me"}
		answer, err := p.Conn().Call(t.Context(), request)
		if err != nil {
			return nil, err
		}
		require.Equal(t, "1", answer.Headers["tempool-count-searches"])
		err = json.Unmarshal(answer.Payload, &found)
		return found, err
	}
	found, err := find(query{Word: "Lease", Most: 2})
	require.NoError(t, err)
	require.Equal(t, []line{
		{"leases.txt", 1, "A lease is the exclusive right to one worker."},
		{"leases.txt", 2, "Taking a lease costs one durable update."},
	}, found)
	found, err = find(query{Word: "nothing"})
	require.NoError(t, err)
	require.Len(t, found, 1)

	_, err = find(query{})
	var failure *wire.RemoteError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, "no_word", failure.Code)

	pieces := 0
	_, err = wire.Prepare(t.Context(), setup.Request(t, "lines", query{Word: "a"}), nil).Do(p.Conn(),
		func([]byte, string) error { pieces++; return nil })
	require.NoError(t, err)
	require.Equal(t, 5, pieces)

	request := setup.Request(t, "history", nil)
	request.Headers = map[string]string{"tempool-session": "me"}
	answer, err := p.Conn().Call(t.Context(), request)
	require.NoError(t, err)
	require.JSONEq(t, `["Lease","nothing"]`, string(answer.Payload))
	require.NoError(t, p.Probe(t.Context()))
}

func TestAnEmptyFolderFailsTheStart(t *testing.T) {
	require.Error(t, build(t.TempDir()))
}
