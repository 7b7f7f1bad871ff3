package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// pids are the processes of a pool's workers by slot, once all of them serve.
func (env *testEnv) pids(pool *tempool.Pool, size int) map[string]int {
	env.t.Helper()
	view := env.waitFor(pool, "all workers serve", func(v api.PoolWorkers) bool { return inService(v) == size })
	pids := map[string]int{}
	for _, w := range view.Workers {
		pids[w.Worker] = w.PID
	}
	return pids
}

// running reports whether a process lives.
func running(t *testing.T, pid int) bool {
	t.Helper()
	entry, err := tree.ReadEntry(pid)
	require.NoError(t, err)
	return entry != nil && !entry.Zombie
}

// requireTakenOver waits until each worker has recorded exactly so many take-overs.
func (env *testEnv) requireTakenOver(pool *tempool.Pool, size, times int) {
	env.t.Helper()
	for slot := range size {
		env.waitHistory(pool, slot, fmt.Sprint(times, " take-overs"), func(history []lifecycle.Transition) bool {
			return len(noted(history, lifecycle.EventKind(lifecycle.TakenOver))) == times
		})
	}
}

// install puts a program where agents are started from, as a package does: the running one loses its name.
func (env *testEnv) install(program string) {
	env.t.Helper()
	env.program = filepath.Join(env.dir, "agent")
	// nobody may write to a program that is executed
	outputOf(env.t, exec.CommandContext(env.t.Context(), "cp", program, env.program+".new"))
	require.NoError(env.t, os.Rename(env.program+".new", env.program))
}

// buildPrevious builds the commit before this one as version 0.1.0, as a user has it who upgrades; or this tree where
// there is no history.
func buildPrevious(t *testing.T, program string) {
	run := func(name string, args ...string) error {
		output, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		t.Logf("%s %v: %v %s", name, args, err, output)
		return err
	}
	tree := t.TempDir()
	archive := filepath.Join(tree, "archive.tar")
	if run("git", "-C", "../..", "archive", "-o", archive, "HEAD^") == nil {
		require.NoError(t, run("tar", "-xf", archive, "-C", tree))
		require.NoError(t, os.WriteFile(filepath.Join(tree, "internal/buildinfo/VERSION"), []byte("0.1.0\n"), 0o600))
	} else {
		tree = "../.."
	}
	require.NoError(t, run("go", "build", "-C", tree, "-trimpath", "-ldflags=-s -w", "-o", program, "./cmd/tempool"))
}

// An agent of an earlier version is replaced by this one, and that by the next one, while callers call and a client
// holds a lease. No process restarts, and every call is answered or was not started.
func TestAnAgentIsUpgradedUnderLoadAndKeepsItsProcesses(t *testing.T) {
	env := newEnv(t)
	const size = 3
	previous := filepath.Join(env.dir, "previous")
	buildPrevious(t, previous)
	builds := []string{previous, os.Args[0], os.Args[0]} // never back: a commit may raise the format of the state
	env.install(builds[0])
	current := env.startAgent("keeper", "--capacity", "4", "--keep-processes")
	s := echoSpec("kept", size)
	s.Rotation.MaxRequests = 0
	pool := env.startPool(s)
	started := env.waitReady(pool, size).Workers
	before := env.pids(pool, size)

	held := env.checkout(pool, tempool.CheckoutOptions{Holder: "holder", TTL: 5 * time.Minute})
	callLease(t, held, "echo")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	answered := echoCallers(ctx, t, &group, pool)
	awaitMore(t, "calls to the first agent", 100, answered)
	for turn := 1; turn <= 2; turn++ {
		began := time.Now()
		env.install(builds[turn]) // before the old one stops, which continues with what it had
		current.stop()
		t.Logf("agent %d stopped in %s", turn, time.Since(began))
		current = env.startAgent("keeper", "--capacity", "4", "--keep-processes")
		env.requireTakenOver(pool, size, turn)
		t.Logf("workers know the next agent after %s", time.Since(began))
		awaitMore(t, "calls to the next agent", 100, answered)
		require.Equal(t, before, env.pids(pool, size), "no process restarts")
		require.NoError(t, held.Err())
		callLease(t, held, "echo") // the lease continues
	}
	require.NoError(t, held.Checkin(t.Context(), api.OutcomeOK))
	cancel()
	group.Wait()
	for slot := range size {
		require.Equal(t, started[slot].Incarnation, env.waitState(pool, slot, lifecycle.Ready).Incarnation)
	}
}

// callLease calls under a lease until the call was started: a gateway may be starting, or find out nothing about a
// lease that it has not seen. It requires an answer.
func callLease(t *testing.T, lease *tempool.Lease, method string) []byte {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); ; sleep(t, 20*time.Millisecond) {
		answer, err := lease.CallRaw(t.Context(), method, nil)
		var coded *api.Error
		if errors.As(err, &coded) && coded.Code == api.CodeUnavailable && !coded.Started && time.Now().Before(deadline) {
			continue
		}
		require.NoError(t, err)
		return answer
	}
}

// The next agent cannot register: its build does not run the workflows yet, and no other agent does. It keeps the
// processes, and starts no call on them.
func TestAnAgentThatCannotRegisterYetKeepsTheProcesses(t *testing.T) {
	env := newEnv(t)
	start := func(build string) *agent {
		return env.startAgent("waiting", "--capacity", "4", "--keep-processes", "--deployment", testDeployment, "--build-id",
			build)
	}
	first := start("1.0")
	pool := env.startPool(echoSpec("waiting", 2))
	before := env.pids(pool, 2)
	held := env.checkout(pool, tempool.CheckoutOptions{Holder: "holder", TTL: 10 * time.Minute})
	callLease(t, held, "echo")
	first.stop()
	second := start("2.0")
	second.waitForLog("took over a worker process")
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); sleep(t, 500*time.Millisecond) {
		_, err := held.CallRaw(t.Context(), "echo", nil)
		var coded *api.Error
		require.ErrorAs(t, err, &coded)
		require.Equal(t, api.CodeUnavailable, coded.Code, "%v", err)
		require.False(t, coded.Started, "%v", err)
	}
	second.stop()
	start("2.0")
	env.promote("2.0")
	env.requireTakenOver(pool, 2, 1)
	require.Equal(t, before, env.pids(pool, 2), "no process restarts")
	callLease(t, held, "echo")
	require.NoError(t, held.Checkin(t.Context(), api.OutcomeOK))
}

// An agent is replaced by one that takes over its processes: a successor that is ready, and waits for the end of a
// client's lease; a frozen process, which the next agent resumes; and one whose suspension has cut a call, while its
// hook runs. Then the agent is killed, and leaves no frozen process.
func TestProcessesAreHandedOverInTheMiddleOfWhatTheyDo(t *testing.T) {
	env := newEnv(t)
	current := env.startAgent("keeps", "--keep-processes")
	hour := tempool.CheckoutOptions{Holder: "me", TTL: time.Hour, Wait: waitTimeout}

	s := echoSpec("successor", 1)
	s.Rotation.DrainTimeout = spec.Duration(time.Hour)
	replaced := env.startPool(s)
	held := env.checkout(replaced, hour)
	callLease(t, held, "echo")
	env.restart(replaced, api.RestartRequest{Worker: new(int), Reason: "so that it has a successor"})
	// starts that a busy Temporal has lost have used numbers, too
	successor := env.waitState(replaced, 0, lifecycle.Draining).Successor
	require.Greater(t, successor, held.Incarnation)

	frozen := env.startPool(freezingSpec("frozen"))
	pid, descendant := env.frozenWorker(frozen)

	notes := filepath.Join(env.dir, "notes")
	s = pythonSpec("hooked", 1, "suspend.py")
	s.Pool.Env["NOTES"], s.Pool.Env["suspend"] = notes, "hang"
	s.Rotation.DrainTimeout, s.Health.Timeout = spec.Duration(time.Second), spec.Duration(waitTimeout)
	hooked := env.startPool(s)
	lease := env.checkout(hooked, hour)
	var hookedPID int
	require.NoError(t, lease.Call(t.Context(), "work", []int{0}, &hookedPID))
	_, cut := startLingering(t, lease)
	env.signal(hooked, 0, api.SignalSuspend, "a look at it")
	require.ErrorIs(t, <-cut, tempool.ErrLeaseFenced)
	require.Eventually(t, func() bool { return exists(env.dir, "notes") }, waitTimeout, 10*time.Millisecond,
		"the hook runs")

	processes := hostProcesses("keeps")
	current.stop()
	require.True(t, stoppedProcess(t, pid), "the keeper holds it as it is")
	require.NoError(t, os.WriteFile(notes+".release", nil, 0o600))
	current = env.startAgent("keeps", "--keep-processes")

	state := env.waitState(replaced, 0, lifecycle.Ready)
	require.Equal(t, successor, state.Incarnation, "no process is started")
	require.Contains(t, processes, state.PID)
	_, err := held.CallRaw(t.Context(), "echo", nil)
	require.Error(t, err, "the lease was on the process that was replaced")
	answer, err := replaced.CallRaw(t.Context(), "echo", []byte(`"new"`))
	require.NoError(t, err)
	require.JSONEq(t, `"new"`, string(answer))

	require.Equal(t, hookedPID, env.waitState(hooked, 0, lifecycle.Suspended).PID, "the process was kept")
	for _, transition := range env.history(hooked, 0) {
		if transition.Event == lifecycle.Suspend {
			require.Equal(t, "1", transition.Metadata["calls_cut"])
		}
	}
	env.waitFor(hooked, "the cut call and the usage of its lease are counted", func(v api.PoolWorkers) bool {
		return v.Workers[0].CallsCut == 1 && v.Workers[0].RequestsServed == 2
	})

	env.requireTakenOver(frozen, 1, 1)
	require.Equal(t, pid, env.waitState(frozen, 0, lifecycle.Suspended).PID)
	require.True(t, stoppedProcess(t, pid))
	env.signal(frozen, 0, api.SignalResume, "")
	env.waitState(frozen, 0, lifecycle.Ready)
	require.False(t, stoppedProcess(t, descendant))
	var after int
	require.Eventually(t, func() bool { return frozen.Call(t.Context(), "work", []int{0}, &after) == nil }, waitTimeout,
		50*time.Millisecond)
	require.Equal(t, pid, after, "the process is the same")

	pid, descendant = env.frozenWorker(frozen)
	before := env.waitState(frozen, 0, lifecycle.Suspended)
	current.kill()
	require.Eventually(t, func() bool { return !running(t, pid) && !running(t, descendant) }, waitTimeout,
		20*time.Millisecond, "the reaper has killed both")
	env.startAgent("keeps")
	env.waitLater(frozen, "the next process serves", before.Incarnation)
}

// A host's workflow is terminated while its agent runs, and its process serves on; then while no agent runs: the next
// one has the workers notified of all earlier epochs. One that keeps no processes replaces those of the agent before,
// and none is left over.
func TestAHostsWorkflowThatIsTerminatedForgetsNoWorker(t *testing.T) {
	env := newEnv(t)
	current := env.startAgent("between", "--keep-processes")
	joined := env.hostStatus("between", "the agent joined", up)
	pool := env.startPool(echoSpec("between", 2))
	before := env.pids(pool, 2)
	terminate := func() {
		t.Helper()
		env.terminate(api.HostWorkflowID("between"))
	}
	terminate()
	again := env.hostStatus("between", "the agent joins again",
		func(s api.HostStatus) bool { return up(s) && s.Since.After(joined.Since) })
	require.Equal(t, joined.Instance, again.Instance)
	require.Equal(t, joined.Epoch, again.Epoch, "nobody else has had the host id")
	lease, err := pool.CheckoutOnce(t.Context(), 0, tempool.CheckoutOptions{Holder: "me"})
	require.NoError(t, err)
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
	require.Equal(t, before, env.pids(pool, 2), "its processes serve on")

	current.stop()
	terminate()
	current = env.startAgent("between", "--keep-processes")
	env.requireTakenOver(pool, 2, 1)
	require.Equal(t, before, env.pids(pool, 2))

	kept := env.waitReady(pool, 2).Workers
	current.stop()
	for _, pid := range before {
		require.True(t, running(t, pid), "the process is kept")
	}
	current = env.startAgent("between") // does not take over
	next := env.waitNext(pool, kept)
	for _, pid := range before {
		require.Eventually(t, func() bool { return !running(t, pid) }, waitTimeout, 20*time.Millisecond,
			"nothing is left over")
	}
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(env.dir, "between", "keeper.sock"))
		return errors.Is(err, fs.ErrNotExist)
	}, waitTimeout, 20*time.Millisecond, "the keeper has ended")

	current.kill()
	terminate()
	env.startAgent("between", "--keep-processes")
	env.waitNext(pool, next)
}

// waitNext waits until all workers of a pool have later processes.
func (env *testEnv) waitNext(pool *tempool.Pool, before []api.Worker) []api.Worker {
	env.t.Helper()
	return env.waitFor(pool, "the workers have new processes", func(v api.PoolWorkers) bool {
		for slot, old := range before {
			if v.Workers[slot].Incarnation <= old.Incarnation {
				return false
			}
		}
		return v.Ready == len(before)
	}).Workers
}
