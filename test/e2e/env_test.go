// Package e2e tests Tempool end to end: a real Temporal server on its SQLite file, real agents, real processes.
package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	interruptible "github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// agentDirVariable makes this test binary run as an agent, so that a test can kill an agent. Its value is the folder
// for footprints.
const agentDirVariable = "TEMPOOL_TEST_AGENT"

// ctlVariable makes this test binary run as tempool, for a test in a terminal.
const ctlVariable = "TEMPOOL_TEST_CTL"

func TestMain(m *testing.M) {
	if os.Getenv(ctlVariable) != "" {
		os.Exit(cli.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if dir := os.Getenv(agentDirVariable); dir != "" {
		if os.Getenv(functionsVariable) != "" {
			registerFunctions()
		}
		go writeFootprints(dir) // until the process exits
		os.Exit(cli.Main(os.Args[1:]...))
	}
	if err := selectCore(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// testEnv is a Temporal server or a namespace of a cluster, a client and any number of agents.
type testEnv struct {
	t      *testing.T
	server server
	client *tempool.Client
	dir    string
	// program is that of agents; "" is this test.
	program string
	sealed  bool // its histories are encrypted: they are of no use to the replay test
}

// newEnv is the environment of a test, which it makes parallel.
func newEnv(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	return newEnvWith(t)
}

// oneHost is a new environment with an agent.
func oneHost(t *testing.T, hostID string, args ...string) *testEnv {
	t.Helper()
	env := newEnv(t)
	env.startAgent(hostID, args...)
	return env
}

// in is the environment in a part of its test, which has pools of its own.
func (env *testEnv) in(t *testing.T) *testEnv {
	part := *env
	part.t = t
	return &part
}

// atOnce runs parts of a test at the same time, each with pools of its own.
func (env *testEnv) atOnce(parts map[string]func(env *testEnv)) {
	for name, part := range parts {
		env.t.Run(name, func(t *testing.T) {
			t.Parallel()
			part(env.in(t))
		})
	}
}

// newEnvWith is an environment with further arguments of the server.
func newEnvWith(t *testing.T, serverArguments ...string) *testEnv {
	t.Helper()
	dir, err := os.MkdirTemp("", "tempool") // not t.TempDir: a Unix socket's path has to be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	env := &testEnv{t: t, server: startServer(t, dir, serverArguments...), dir: dir}
	// a server that is busy may take longer than Dial waits
	for deadline := time.Now().Add(waitTimeout); env.client == nil; sleep(t, 50*time.Millisecond) {
		env.client, err = tempool.Dial(t.Context(),
			tempool.Options{Address: env.server.Address(), Namespace: env.server.Namespace(), Logger: newDiscardLogger(),
				QueryTimeout: waitTimeout})
		require.False(t, err != nil && time.Now().After(deadline), "%v", err)
	}
	t.Cleanup(env.client.Close)
	t.Cleanup(env.recordHistories)
	return env
}

// agent is an agent in its own process.
type agent struct {
	t   *testing.T
	cmd *exec.Cmd
	log string
}

func (env *testEnv) startAgent(hostID string, args ...string) *agent {
	env.t.Helper()
	return env.startAgentBy(nil, hostID, args...)
}

// startAgentBy starts an agent by a command that executes its arguments.
func (env *testEnv) startAgentBy(by []string, hostID string, args ...string) *agent {
	env.t.Helper()
	return env.startAgentWith(nil, by, hostID, args...)
}

// startAgentWith is startAgentBy with attributes of the process.
func (env *testEnv) startAgentWith(attributes *syscall.SysProcAttr, by []string, hostID string, args ...string) *agent {
	env.t.Helper()
	logFile, err := os.OpenFile(filepath.Join(env.dir, hostID+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(env.t, err)
	defer logFile.Close()
	args = append([]string{"agent", "--address", env.server.Address(), "--namespace", env.server.Namespace(),
		"--host-id", hostID, "--state-dir", filepath.Join(env.dir, hostID), "--listen", ""}, args...)
	command := append(append(slices.Clone(by), cmp.Or(env.program, os.Args[0])), args...)
	a := &agent{t: env.t, cmd: exec.Command(command[0], command[1:]...), log: logFile.Name()}
	a.cmd.SysProcAttr = attributes
	a.cmd.Env = append(os.Environ(), agentDirVariable+"="+env.dir, "PATH="+os.Getenv("PATH")+":"+ownPath)
	a.cmd.Stdout, a.cmd.Stderr = logFile, logFile
	require.NoError(env.t, a.cmd.Start())
	env.t.Cleanup(func() {
		a.stop()
		content, _ := os.ReadFile(a.log)
		// which the race detector writes there
		if _, race, found := strings.Cut(string(content), "WARNING: DATA RACE\n"); found {
			env.t.Errorf("agent %s: data race:\n%s", hostID, race[:min(len(race), 8<<10)])
		}
		if env.t.Failed() {
			env.t.Logf("end of the log of agent %s:\n%s", hostID, tail(content))
		}
	})
	return a
}

// logLines is short by default, so that the failure itself is still seen where only the end of the output is kept.
var logLines = flag.Int("log-lines", 8,
	"how many lines of each agent's and server's log, and transitions of each worker, a failed test prints")

// tail is the end of a log.
func tail(content []byte) string {
	lines := strings.Split(string(content), "\n")
	lines = lines[max(0, len(lines)-*logLines):]
	for i, line := range lines {
		lines[i] = line[:min(len(line), 250)]
	}
	return strings.Join(lines, "\n")
}

// stop stops the agent gracefully, unless it has exited, also if it is frozen.
func (a *agent) stop() {
	if a.cmd.ProcessState != nil {
		return
	}
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
	kill := time.AfterFunc(waitTimeout, func() { _ = a.cmd.Process.Kill() })
	err := a.cmd.Wait()
	if !kill.Stop() {
		a.t.Errorf("the agent did not stop within %s", waitTimeout)
	}
	if a.cmd.ProcessState.ExitCode() != 0 {
		a.t.Logf("agent exited: %v", err)
	}
}

// freeze stops the agent's process until SIGCONT. Its threads may still answer for milliseconds after kill(2) has
// returned, until all of them have stopped.
func (a *agent) freeze() {
	require.NoError(a.t, a.cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(a.t, func() bool {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(a.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		return err == nil && status.Stopped()
	}, waitTimeout, time.Millisecond)
}

func (a *agent) kill() {
	require.NoError(a.t, a.cmd.Process.Kill())
	_ = a.cmd.Wait() // reports the kill
}

func newDiscardLogger() log.Logger { return log.NewStructuredLogger(slog.New(slog.DiscardHandler)) }

// echoSpec is the spec of a pool whose workers echo their input.
func echoSpec(name string, size int) spec.Spec {
	return pythonSpec(name, size, "echo.py")
}

func pythonSpec(name string, size int, script string) spec.Spec {
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
	return patient(s)
}

// troubleSpec is the spec of a pool whose workers append notes to a file.
func (env *testEnv) troubleSpec(name string, size int) spec.Spec {
	s := pythonSpec(name, size, "trouble.py")
	s.Pool.Env["NOTES"] = filepath.Join(env.dir, name+".notes")
	return s
}

// shellSpec is the spec of a pool whose workers run a script, and are ready as soon as it runs.
func shellSpec(name string, size int, script string, args ...string) spec.Spec {
	s := patient(spec.Default())
	s.Pool.Name, s.Pool.Size, s.Pool.Protocol = name, size, spec.ProtocolNone
	s.Pool.Command = append([]string{"sh", "-c", script}, args...)
	s.Health.Kind, s.Health.Command = spec.HealthExec, []string{"true"}
	return s
}

// patient returns a spec with time-outs that no machine reaches: that it is busy is not a reason to fail a start, a
// call or a probe.
func patient(s spec.Spec) spec.Spec {
	s.Start.Timeout, s.Queue.Timeout, s.Health.Timeout =
		spec.Duration(waitTimeout), spec.Duration(waitTimeout), spec.Duration(
			waitTimeout)
	return s
}

// loadSpec loads the pool.toml of a project.
func loadSpec(t *testing.T, project string) spec.Spec {
	t.Helper()
	s, err := spec.Load(filepath.Join(project, "pool.toml"))
	require.NoError(t, err)
	return patient(s)
}

// startPool starts a pool and waits until all its workers are ready, and the pool's roster, which is behind its
// workers, says so: gateways and clients go by it.
func (env *testEnv) startPool(s spec.Spec) *tempool.Pool {
	env.t.Helper()
	pool := env.beginPool(s)
	env.t.Cleanup(func() { env.logHistories(pool, s.Pool.Size) })
	env.waitReady(pool, s.Pool.Size)
	until(env, "the roster has not the gateways of all workers", pool.Status, func(status api.PoolStatus) bool {
		return status.Ready == s.Pool.Size &&
			!slices.ContainsFunc(status.Workers, func(w api.RosterEntry) bool { return w.Endpoint == "" })
	})
	return pool
}

// beginPool starts a pool without waiting for its workers.
func (env *testEnv) beginPool(s spec.Spec) *tempool.Pool {
	env.t.Helper()
	env.repeat(func(ctx context.Context) error {
		err := env.client.StartPool(ctx, api.PoolStart{Pool: s.Pool.Name, Spec: s})
		if api.CodeOf(err) == api.CodePoolExists { // an attempt that got no answer has started it
			return nil
		}
		return err
	})
	return env.client.Pool(s.Pool.Name)
}

// stopPool stops a pool and waits until it has ended.
func (env *testEnv) stopPool(pool *tempool.Pool) {
	env.t.Helper()
	_, err := pool.Stop(env.t.Context(), "the test is over")
	require.NoError(env.t, err)
	env.waitEnd(pool)
}

// checkout takes a lease.
func (env *testEnv) checkout(pool *tempool.Pool, o tempool.CheckoutOptions) *tempool.Lease {
	env.t.Helper()
	lease, err := pool.Checkout(env.t.Context(), o)
	require.NoError(env.t, err)
	return lease
}

// logHistories logs what happened to the workers of a pool, if the test has failed.
func (env *testEnv) logHistories(pool *tempool.Pool, size int) {
	if !env.t.Failed() {
		return
	}
	// nobody answers if the test has stopped its agents
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for slot := range size {
		history, err := pool.History(ctx, slot)
		if err != nil {
			env.t.Logf("no history of worker %d: %v", slot, err)
			return
		}
		for _, transition := range history[max(0, len(history)-*logLines/2):] {
			line, _ := json.Marshal(transition)
			env.t.Logf("worker %d: %s", slot, line)
		}
	}
}

// waitEnd waits until a pool that was stopped has ended.
func (env *testEnv) waitEnd(pool *tempool.Pool) {
	env.t.Helper()
	ctx, cancel := context.WithTimeout(env.t.Context(), 2*waitTimeout)
	defer cancel()
	require.NoError(env.t, pool.Wait(ctx), "the pool ends")
}

// waitTimeout ends a wait for what must happen. It is not a measure of how long that takes: machines of continuous
// integration may be ten times slower.
const waitTimeout = 5 * time.Minute

// waitReady waits until a pool has exactly size workers and all of them are ready.
func (env *testEnv) waitReady(pool *tempool.Pool, size int) api.PoolWorkers {
	env.t.Helper()
	return env.waitFor(pool, fmt.Sprintf("%d workers are ready", size), func(v api.PoolWorkers) bool {
		return v.Ready == size && len(v.Workers) == size
	})
}

// waitLater waits until the only worker of a pool is ready in an incarnation later than one.
func (env *testEnv) waitLater(pool *tempool.Pool, what string, incarnation int64) api.PoolWorkers {
	env.t.Helper()
	return env.waitFor(pool, what,
		func(v api.PoolWorkers) bool { return v.Ready == 1 && v.Workers[0].Incarnation > incarnation })
}

// pause is how long to wait after what was asked before the next question: at least twice as long as the answer took,
// and at most two seconds, so that questions, which are most of what waiting tests cost, do not occupy a slow machine.
func pause(asked time.Time, least time.Duration) time.Duration {
	return min(max(least, 2*time.Since(asked)), max(least, 2*time.Second))
}

// waitFor waits until the pool's workers satisfy a condition.
func (env *testEnv) waitFor(pool *tempool.Pool, what string, holds func(api.PoolWorkers) bool) api.PoolWorkers {
	env.t.Helper()
	return env.waitForWithin(waitTimeout, pool, what, holds)
}

func (env *testEnv) waitForWithin(limit time.Duration, pool *tempool.Pool, what string,
	holds func(api.PoolWorkers) bool) api.PoolWorkers {
	env.t.Helper()
	var last api.PoolWorkers
	var err error
	deadline := time.Now().Add(limit)
	for asked := time.Now(); asked.Before(deadline); asked = time.Now() {
		if last, err = pool.Workers(env.t.Context()); err == nil && holds(last) {
			return last
		}
		sleep(env.t, pause(asked, 150*time.Millisecond))
	}
	view, _ := json.Marshal(last)
	require.FailNow(env.t, "timed out waiting until "+what, "error: %v, last view: %s", err, view)
	return last
}

// withAndWithoutSurge runs a test twice: a replaced process gets its successor beside it, and after its end.
func withAndWithoutSurge(t *testing.T, test func(t *testing.T, surge bool)) {
	t.Helper()
	for _, surge := range []bool{true, false} {
		t.Run(fmt.Sprint("surge=", surge), func(t *testing.T) { test(t, surge) })
	}
}

// sleep waits for d, or fails the test if the test is over. Use it between polls, or where the time itself is what a
// test needs.
func sleep(t *testing.T, d time.Duration) {
	require.True(t, wait(t.Context(), d), "the test is over")
}

// wait waits for d and returns true, or returns false as soon as ctx ends.
func wait(ctx context.Context, d time.Duration) bool { return interruptible.For(ctx.Done(), d) }

// until asks until an answer is as described, and returns it: a request gives up after ten seconds, and a machine may
// stall for longer.
func until[T any](env *testEnv, what string, question func(context.Context) (T, error), holds func(T) bool) (answer T) {
	env.t.Helper()
	var err error
	require.Eventually(env.t, func() bool {
		answer, err = question(env.t.Context())
		return err == nil && holds(answer)
	}, waitTimeout, 30*time.Millisecond, "%s: %v, %+v", what, &err, &answer)
	return answer
}

// asked asks the Temporal server until it answers.
func asked[T any](env *testEnv, question func(context.Context) (T, error)) T {
	env.t.Helper()
	return until(env, "no answer", question, func(T) bool { return true })
}

// repeat gives an order, which may arrive twice, until it is answered.
func (env *testEnv) repeat(order func(context.Context) error) {
	env.t.Helper()
	asked(env, func(ctx context.Context) (struct{}, error) { return struct{}{}, order(ctx) })
}

// execute starts a workflow; repeated while it runs, it starts no second one.
func (env *testEnv) execute(id, taskQueue, name string, arguments ...any) client.WorkflowRun {
	env.t.Helper()
	return asked(env, func(ctx context.Context) (client.WorkflowRun, error) {
		return env.client.Temporal().ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: taskQueue},
			name, arguments...)
	})
}

// send sends a workflow a signal that it may get twice.
func (env *testEnv) send(workflowID, name string, argument any) {
	env.t.Helper()
	env.repeat(func(ctx context.Context) error {
		return env.client.Temporal().SignalWorkflow(ctx, workflowID, "", name, argument)
	})
}

// cancel requests the cancellation of a workflow.
func (env *testEnv) cancel(workflowID string) {
	env.t.Helper()
	env.repeat(func(ctx context.Context) error { return env.client.Temporal().CancelWorkflow(ctx, workflowID, "") })
}

// waitState waits until a worker is in a state.
func (env *testEnv) waitState(pool *tempool.Pool, slot int, state lifecycle.State) api.WorkerState {
	env.t.Helper()
	return env.waitWorker(pool, slot, "is not "+string(state), func(w api.WorkerState) bool { return w.State == state })
}

// waitWorker waits until a worker's state is as described.
func (env *testEnv) waitWorker(pool *tempool.Pool, slot int, what string,
	holds func(api.WorkerState) bool) api.WorkerState {
	env.t.Helper()
	return until(env, fmt.Sprintf("worker %d %s", slot, what),
		func(ctx context.Context) (api.WorkerState, error) { return pool.State(ctx, slot) }, holds)
}

// history returns the newest transitions of a worker, oldest first. A query may get no answer while an agent is being
// replaced.
func (env *testEnv) history(pool *tempool.Pool, slot int) []lifecycle.Transition {
	env.t.Helper()
	return env.waitHistory(pool, slot, "one", func(history []lifecycle.Transition) bool { return len(history) > 0 })
}

// waitHistory waits until the newest transitions of a worker are as described.
func (env *testEnv) waitHistory(pool *tempool.Pool, slot int, what string,
	holds func([]lifecycle.Transition) bool) []lifecycle.Transition {
	env.t.Helper()
	return until(env, fmt.Sprintf("worker %d has no history with %s", slot, what),
		func(ctx context.Context) ([]lifecycle.Transition, error) { return pool.History(ctx, slot) }, holds)
}

// noted are the reasons of the transitions of a kind.
func noted(history []lifecycle.Transition, kind lifecycle.EventKind) (reasons []string) {
	for _, transition := range history {
		if transition.Event == kind {
			reasons = append(reasons, transition.Reason)
		}
	}
	return reasons
}

// ownPath is a folder in the PATH of the agents of this process, and so of their workers. It does not exist.
var ownPath = fmt.Sprintf("/nonexistent/tempool-test-%d", os.Getpid())

// hostProcesses returns the processes whose environment names the host: its workers and all their descendants. Those of
// tests that another process runs at the same time, whose hosts have the same names, are not among them.
func hostProcesses(hostID string) []int { return processesWith("TEMPOOL_INCARNATION=" + hostID + ":") }

// processesWith returns the processes of this test whose environment contains a text. That of a fork is its template's,
// and names no host.
func processesWith(text string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(content), text) &&
			strings.Contains(string(content), ":"+ownPath+"\x00") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// outputOf runs a command, which must succeed, and returns what it prints.
func outputOf(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s: %s", command, output)
	return string(output)
}

// runClient runs a program of a client and returns what it printed.
func runClient(t *testing.T, dir string, env []string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	program := exec.CommandContext(ctx, command[0], command[1:]...)
	program.Dir, program.Env = dir, append(os.Environ(), env...)
	return outputOf(t, program)
}

func processAlive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// killProcess kills a process with SIGKILL.
func killProcess(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}
