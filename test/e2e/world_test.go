// Package e2e tries Tempool as its users have it: a real Temporal server on its file, real agents, real processes.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/agentcmd"
	"github.com/tempool/tempool/internal/devserver"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// asAgent makes this test binary an agent, so that a test can kill one without dying itself. It names the folder for its footprints.
const asAgent = "TEMPOOL_TEST_AGENT"

func TestMain(m *testing.M) {
	process.RunReaperIfAsked()
	if dir := os.Getenv(asAgent); dir != "" {
		go leaveFootprints(dir) // as long as the process
		os.Exit(agentcmd.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// world is one Temporal server with its clients; agents join it.
type world struct {
	t      *testing.T
	server *devserver.Server
	client *tempool.Client
	dir    string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "tempool") // not t.TempDir: a Unix socket's path has to be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := devserver.Start(t.Context(), devserver.Options{
		DBFile: filepath.Join(dir, "temporal.db"), UIPort: devserver.NoUI,
		Progress: func(s string) { t.Log(s) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	w := &world{t: t, server: server, dir: dir}
	w.client, err = tempool.Dial(t.Context(), tempool.Options{Address: server.Address(), Logger: quiet()})
	require.NoError(t, err)
	t.Cleanup(w.client.Close)
	t.Cleanup(w.keepHistories)
	return w
}

// agent is one agent in a process of its own.
type agent struct {
	t   *testing.T
	cmd *exec.Cmd
	log string
}

func (w *world) agent(hostID string, args ...string) *agent {
	w.t.Helper()
	logFile, err := os.OpenFile(filepath.Join(w.dir, hostID+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(w.t, err)
	defer logFile.Close()
	args = append([]string{"--address", w.server.Address(), "--host-id", hostID, "--state-dir", filepath.Join(w.dir, hostID), "--listen", ""}, args...)
	a := &agent{t: w.t, cmd: exec.Command(os.Args[0], args...), log: logFile.Name()}
	a.cmd.Env = append(os.Environ(), asAgent+"="+w.dir)
	a.cmd.Stdout, a.cmd.Stderr = logFile, logFile
	require.NoError(w.t, a.cmd.Start())
	w.t.Cleanup(func() {
		a.stop()
		if w.t.Failed() {
			content, _ := os.ReadFile(a.log)
			lines := strings.Split(string(content), "\n")
			w.t.Logf("the end of agent %s's log:\n%s", hostID, strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
	return a
}

// stop ends the agent in good order; it is no error when it has ended.
func (a *agent) stop() {
	if a.cmd.ProcessState != nil {
		return
	}
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	err := a.cmd.Wait()
	if a.cmd.ProcessState.ExitCode() != 0 {
		a.t.Logf("agent ended: %v", err)
	}
}

func (a *agent) kill() {
	require.NoError(a.t, a.cmd.Process.Kill())
	_ = a.cmd.Wait() // it was killed: that is its error
}

func quiet() quietLog { return quietLog{} }

// quietLog drops what the SDK of a test's client says.
type quietLog struct{}

func (quietLog) Debug(string, ...any) {}
func (quietLog) Info(string, ...any)  {}
func (quietLog) Warn(string, ...any)  {}
func (quietLog) Error(string, ...any) {}

// echo is the spec of a pool whose workers do next to nothing.
func echo(name string, size int) spec.Spec {
	return python(name, size, "echo.py")
}

func python(name string, size int, script string) spec.Spec {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		panic(err)
	}
	sdk, err := filepath.Abs(filepath.Join("..", "..", "sdk", "python"))
	if err != nil {
		panic(err)
	}
	if *record != "" {
		dir, sdk = recordedCopy(dir, "scripts"), recordedCopy(sdk, "sdk")
	}
	s := spec.Default()
	s.Pool.Name, s.Pool.Size, s.Pool.Command = name, size, []string{"python3", script}
	s.Pool.Dir = dir
	s.Pool.Env = map[string]string{"PYTHONPATH": sdk}
	return s
}

// start starts a pool and waits until all of it is ready.
func (w *world) start(s spec.Spec) *tempool.Pool {
	w.t.Helper()
	require.NoError(w.t, w.client.StartPool(w.t.Context(), api.PoolStart{Pool: s.Pool.Name, Spec: s}))
	pool := w.client.Pool(s.Pool.Name)
	w.ready(pool, s.Pool.Size)
	return pool
}

const patience = 90 * time.Second

// ready waits until so many workers of a pool are ready, and no worker beyond them exists.
func (w *world) ready(pool *tempool.Pool, size int) api.PoolWorkers {
	w.t.Helper()
	return w.until(pool, fmt.Sprintf("%d workers are ready", size), func(v api.PoolWorkers) bool {
		return v.Ready == size && len(v.Workers) == size
	})
}

// until waits until a pool's view satisfies a condition.
func (w *world) until(pool *tempool.Pool, what string, holds func(api.PoolWorkers) bool) api.PoolWorkers {
	w.t.Helper()
	return w.untilWithin(patience, pool, what, holds)
}

func (w *world) untilWithin(limit time.Duration, pool *tempool.Pool, what string, holds func(api.PoolWorkers) bool) api.PoolWorkers {
	w.t.Helper()
	var last api.PoolWorkers
	var err error
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		if last, err = pool.Workers(w.t.Context()); err == nil && holds(last) {
			return last
		}
		pause(w.t, 50*time.Millisecond)
	}
	require.FailNow(w.t, "gave up waiting until "+what, "last view: %+v, error: %v", last, err)
	return last
}

// pause lets a poll wait for its next turn.
func pause(t *testing.T, d time.Duration) {
	select {
	case <-t.Context().Done():
		require.FailNow(t, "the test was ended")
	case <-time.After(d):
	}
}

// state waits until one worker is in a state.
func (w *world) state(pool *tempool.Pool, slot int, state lifecycle.State) api.WorkerState {
	w.t.Helper()
	var got api.WorkerState
	require.Eventually(w.t, func() bool {
		var err error
		got, err = pool.State(w.t.Context(), slot)
		return err == nil && got.State == state
	}, patience, 30*time.Millisecond, "worker %d is not %s but %+v", slot, state, &got)
	return got
}

// bearers are the processes whose environment names a host: every descendant of its workers, wherever it went.
func bearers(hostID string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(content), "TEMPOOL_INCARNATION="+hostID+":") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// kill kills one process for good.
func kill(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}
