// Package ui_test tests the dashboard in a real Chromium: with a Temporal server, agents and processes, and with the
// roster of a large pool. It is a module of its own, so that nobody but these tests depends on the driver of the
// browser.
package ui_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/internal/devserver"
	"github.com/tempool/tempool/spec"
)

// agentVariable makes this test binary run as an agent.
const agentVariable = "TEMPOOL_TEST_AGENT"

// timeout bounds each wait; only a failing test waits so long. Machines of continuous integration may be ten times
// slower.
const timeout = 3 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(agentVariable) != "" {
		os.Exit(cli.Main(append([]string{"agent"}, os.Args[1:]...)...))
	}
	os.Exit(m.Run())
}

// fleet is a Temporal server with agents.
type fleet struct {
	t      *testing.T
	server *devserver.Server
	client *tempool.Client
	dir    string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "tempool") // not t.TempDir: a Unix socket's path has to be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := devserver.Start(t.Context(), devserver.Options{
		DBFile: filepath.Join(dir, "temporal.db"), UIPort: devserver.NoUI,
		Progress: func(sentence string) { t.Log(sentence) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	f := &fleet{t: t, server: server, dir: dir}
	require.Eventually(t, func() bool { // a server that is busy may take longer than Dial waits
		f.client, err = tempool.Dial(t.Context(),
			tempool.Options{Address: server.Address(), Namespace: server.Namespace(), Logger: slog.New(slog.DiscardHandler),
				QueryTimeout: timeout})
		return err == nil
	}, timeout, 50*time.Millisecond, "%v", &err)
	t.Cleanup(f.client.Close)
	return f
}

// startAgent starts an agent on a free port of loopback and returns its endpoint.
func (f *fleet) startAgent(hostID string, args ...string) (endpoint string) {
	f.t.Helper()
	log, err := os.Create(filepath.Join(f.dir, hostID+".log"))
	require.NoError(f.t, err)
	defer log.Close()
	args = append([]string{"--address", f.server.Address(), "--namespace", f.server.Namespace(), "--host-id", hostID,
		"--state-dir", filepath.Join(f.dir, hostID),
		"--listen", "127.0.0.1:0", "--temporal-ui", "http://127.0.0.1:8233"}, args...)
	agent := exec.Command(os.Args[0], args...)
	agent.Env = append(os.Environ(), agentVariable+"=1")
	agent.Stdout, agent.Stderr = log, log
	require.NoError(f.t, agent.Start())
	f.t.Cleanup(func() {
		_ = agent.Process.Signal(syscall.SIGTERM)
		_ = agent.Wait()
		if f.t.Failed() {
			file, err := os.Open(log.Name())
			require.NoError(f.t, err)
			defer file.Close()
			_, _ = io.Copy(f.t.Output(), file)
		}
	})
	require.Eventually(f.t, func() bool {
		hosts, err := f.client.Hosts(f.t.Context())
		for _, h := range hosts {
			if err == nil && h.ID == hostID && h.Heartbeat.Agent != nil {
				endpoint = h.Heartbeat.Agent.Endpoint
			}
		}
		return endpoint != ""
	}, timeout, 100*time.Millisecond, "agent %s is up", hostID)
	return endpoint
}

// startPool starts a pool of workers of testdata, whose spec has these changes, and waits until they are ready.
func (f *fleet) startPool(name string, size int, changes ...func(*spec.Spec)) *tempool.Pool {
	f.t.Helper()
	dir, err := filepath.Abs("testdata")
	require.NoError(f.t, err)
	sdk, err := filepath.Abs(filepath.Join("..", "..", "sdk", "python"))
	require.NoError(f.t, err)
	s := spec.Default()
	s.Pool.Name, s.Pool.Size, s.Pool.Command, s.Pool.Dir = name, size, []string{"python3", "worker.py"}, dir
	s.Pool.Env = map[string]string{"PYTHONPATH": sdk, "PYTHONDONTWRITEBYTECODE": "1"}
	// whatever else the machine does
	s.Start.Timeout, s.Queue.Timeout, s.Health.Timeout = spec.Duration(timeout), spec.Duration(timeout), spec.Duration(
		timeout)
	for _, change := range changes {
		change(&s)
	}
	require.NoError(f.t, f.client.StartPool(f.t.Context(), api.PoolStart{Pool: name, Spec: s}))
	pool := f.client.Pool(name)
	f.await(pool, "all workers are ready", func(v api.PoolWorkers) bool { return v.Ready == size })
	return pool
}

func (f *fleet) await(pool *tempool.Pool, what string, holds func(api.PoolWorkers) bool) {
	f.t.Helper()
	var last api.PoolWorkers
	require.Eventually(f.t, func() bool {
		var err error
		last, err = pool.Workers(f.t.Context())
		return err == nil && holds(last)
	}, timeout, 100*time.Millisecond, "%s: %+v", what, &last)
}

// signInLink is what tempool ui opens for the agent's user.
func (f *fleet) signInLink(hostID string) string {
	f.t.Helper()
	link, err := f.client.DashboardLink(f.t.Context(), "unix:"+filepath.Join(f.dir, hostID, "gateway.sock"))
	require.NoError(f.t, err)
	return link.URL
}
