package dev

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/devserver"
	"github.com/tempool/tempool/internal/logging/logtest"
	"github.com/tempool/tempool/worker"
)

// webServers is a pool that needs no SDK.
const webServers = `
[pool]
name = "py"
size = 2
command = ["python3", "-c", """
import http.server, os
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""]
protocol = "none"
[health]
kind = "http"
`

// own returns options with their own ports and files.
func own(t *testing.T) (Options, *logtest.Log) {
	cache, err := os.MkdirTemp("", "st") // short, for the agent's socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(cache)) })
	file := filepath.Join(cache, "pool.toml")
	require.NoError(t, os.WriteFile(file, []byte(webServers), 0o600))
	out := &logtest.Log{}
	return Options{PoolFile: file, DataDir: filepath.Join(cache, "dev"), Port: freePort(t), UIPort: freePort(t),
		Listen: net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t))), Out: out}, out
}

// freePort returns a port below those that the system gives to connections, one of which could take it before it is
// used, or before the test finds that nothing listens.
func freePort(t *testing.T) (port int) {
	require.Eventually(t, func() bool {
		port = 10_000 + rand.IntN(10_000)
		return free(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}, time.Minute, time.Millisecond)
	return port
}

func requireNothingListens(t *testing.T, o Options) {
	t.Helper()
	for _, port := range []int{o.Port, o.UIPort} {
		require.True(t, free(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))), port)
	}
	require.True(t, free(o.Listen))
}

func TestRunStartsAndStopsEverything(t *testing.T) {
	o, out := own(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "pool scale py") || len(ended) > 0 },
		3*time.Minute, 50*time.Millisecond, "%s", out)
	require.Contains(t, out.String(), "Pool py is ready: 2 workers")
	require.Contains(t, out.String(), "workflows/tempool%2Fpy%2F0")
	require.Contains(t, out.String(), "TEMPORAL_ADDRESS=127.0.0.1:"+strconv.Itoa(o.Port))
	cancel(errInterrupted)
	select {
	case err := <-ended:
		require.NoError(t, err, out.String())
	case <-time.After(2 * time.Minute):
		t.Fatal("Run does not return: ", out.String())
	}
	requireNothingListens(t, o)

	// Again, on the same data: the old pool has ended, so this starts a new one.
	o.Once = true
	require.NoError(t, Run(t.Context(), o), out.String())
	requireNothingListens(t, o)
}

func TestATakenPortFailsAndLeavesNothing(t *testing.T) {
	o, out := own(t)
	listener, err := net.Listen("tcp", o.Listen)
	require.NoError(t, err)
	defer listener.Close()
	err = Run(t.Context(), o)
	require.ErrorContains(t, err, "cannot listen on "+o.Listen)
	require.Contains(t, out.String(), "Stopping the Temporal server")

	o.Port = listener.Addr().(*net.TCPAddr).Port
	require.ErrorContains(t, Run(t.Context(), o), "which is taken")
}

func TestTheErrorOfAFailingPoolHasTheWorkersOutput(t *testing.T) {
	o, _ := own(t)
	require.NoError(t, os.WriteFile(o.PoolFile,
		[]byte("[pool]\nname = \"py\"\nsize = 1\ncommand = [\"sh\", \"-c\", \"echo no such model >&2; exit 3\"]\n"), 0o600))
	err := Run(t.Context(), o)
	require.ErrorContains(t, err, "worker py/0 cannot start")
	require.ErrorContains(t, err, "no such model")
	requireNothingListens(t, o)
}

func TestARunningServerIsUsed(t *testing.T) {
	t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(t.TempDir(), "none.toml"))
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
	t.Setenv("TEMPORAL_ADDRESS", address)
	out := &logtest.Log{}
	s := &starter{options: Options{Out: out}}
	require.ErrorContains(t, s.findOrStartServer(t.Context()), "name "+address)

	server, err := devserver.Start(t.Context(), devserver.Options{UIPort: devserver.NoUI})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop(context.Background())) }()
	t.Setenv("TEMPORAL_ADDRESS", server.Address())
	t.Setenv("TEMPORAL_NAMESPACE", "some")
	require.NoError(t, s.findOrStartServer(t.Context()))
	require.Regexp(t, `Using the running Temporal server \d\S+ at `+server.Address(), out)
	require.Equal(t, server.Address(), s.temporal.Address)
	require.Equal(t, "some", s.temporal.Namespace)
}

// The roster says for a while after their restart that they rest.
func TestDrainedWorkersOfARunningPoolServeAgain(t *testing.T) {
	o, out := own(t)
	server, err := devserver.Start(t.Context(), devserver.Options{UIPort: devserver.NoUI})
	require.NoError(t, err)
	s := &starter{options: o}
	defer func() { require.NoError(t, s.stopAll()) }()
	s.onStop("", time.Minute, server.Stop)
	agent, err := worker.Start(t.Context(), worker.Config{Address: server.Address(), HostID: "other",
		StateDir: filepath.Join(o.DataDir, "agent"), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s.onStop("", time.Minute, func(context.Context) error { return agent.Stop() })
	s.client, err = tempool.Dial(t.Context(), tempool.Options{Address: server.Address()})
	require.NoError(t, err)
	defer s.client.Close()
	s.spec, err = s.loadSpec()
	require.NoError(t, err)
	require.NoError(t, s.startPool(t.Context()))
	pool := s.client.Pool("py")
	require.NoError(t, pool.Signal(t.Context(), 0, api.SignalDrain, api.Control{}))
	require.Eventually(t, func() bool {
		status, err := pool.Status(t.Context())
		return err == nil && slices.ContainsFunc(status.Workers, func(w api.RosterEntry) bool { return w.Resting })
	}, time.Minute, 20*time.Millisecond)

	require.NoError(t, s.startPool(t.Context()), out)
	served, err := pool.State(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, served.Incarnation)
}
