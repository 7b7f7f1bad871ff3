package e2e

import (
	"context"
	"errors"
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
func requireTakenOver(t *testing.T, pool *tempool.Pool, size, times int) {
	t.Helper()
	for slot := range size {
		var last []lifecycle.Transition
		require.Eventually(t, func() bool {
			history, err := pool.History(t.Context(), slot)
			last = history
			n := 0
			for _, transition := range history {
				if transition.Event == lifecycle.EventKind(lifecycle.TakenOver) {
					n++
				}
			}
			return err == nil && n == times
		}, waitTimeout, 50*time.Millisecond, "worker %d was taken over %d times: %+v", slot, times, &last)
	}
}

// install puts a program where agents are started from, as a package does: the running one loses its name.
func (env *testEnv) install(program string) {
	env.t.Helper()
	env.program = filepath.Join(env.dir, "agent")
	// nobody may write to a program that is executed
	output, err := exec.CommandContext(env.t.Context(), "cp", program, env.program+".new").CombinedOutput()
	require.NoError(env.t, err, "%s", output)
	require.NoError(env.t, os.Rename(env.program+".new", env.program))
}

// An agent is replaced by another build of it, and that by the first one again, while callers call and a client holds a
// lease. No process restarts, and every call is answered or was not started.
func TestAnAgentIsReplacedByAnotherBuildUnderLoadAndKeepsItsProcesses(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	const size = 3
	release := filepath.Join(env.dir, "tempool")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", release,
		"../../cmd/tempool").CombinedOutput()
	require.NoError(t, err, "%s", output)
	builds := []string{os.Args[0], release, os.Args[0]}
	env.install(builds[0])
	current := env.startAgent("keeper", "--capacity", "4", "--keep-processes")
	s := echoSpec("kept", size)
	s.Rotation.MaxRequests = 0
	pool := env.startPool(s)
	started := env.waitReady(pool, size).Workers
	before := env.pids(pool, size)

	held, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "holder", TTL: 5 * time.Minute})
	require.NoError(t, err)
	_, err = held.CallRaw(t.Context(), "echo", []byte(`1`))
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	answered := echoCallers(ctx, t, &group, pool)
	goOn := func(what string) {
		t.Helper()
		calls := answered.Load()
		require.Eventually(t, func() bool { return answered.Load() > calls+100 }, waitTimeout, 10*time.Millisecond,
			"%s: calls continue", what)
	}
	goOn("the first agent")
	for turn := 1; turn <= 2; turn++ {
		began := time.Now()
		env.install(builds[turn]) // before the old one stops, which continues with what it had
		current.stop()
		t.Logf("agent %d stopped in %s", turn, time.Since(began))
		current = env.startAgent("keeper", "--capacity", "4", "--keep-processes")
		requireTakenOver(t, pool, size, turn)
		t.Logf("workers know the next agent after %s", time.Since(began))
		goOn("the next agent")
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

// The next agent cannot register for longer than an agent without processes tries: its build does not run the workflows
// yet, and no other agent does. It keeps the processes, and starts no call on them.
func TestAnAgentThatCannotRegisterYetKeepsTheProcesses(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	start := func(build string) *agent {
		return env.startAgent("waiting", "--capacity", "4", "--keep-processes", "--deployment", testDeployment, "--build-id",
			build)
	}
	first := start("1.0")
	pool := env.startPool(echoSpec("waiting", 2))
	before := env.pids(pool, 2)
	held, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "holder", TTL: 10 * time.Minute})
	require.NoError(t, err)
	callLease(t, held, "echo")
	first.stop()
	second := start("2.0")
	second.waitForLog("took over a worker process")
	for end := time.Now().Add(35 * time.Second); time.Now().Before(end); sleep(t, time.Second) {
		_, err := held.CallRaw(t.Context(), "echo", nil)
		var coded *api.Error
		require.ErrorAs(t, err, &coded)
		require.Equal(t, api.CodeUnavailable, coded.Code, "%v", err)
		require.False(t, coded.Started, "%v", err)
	}
	second.stop()
	start("2.0")
	env.promote("2.0")
	requireTakenOver(t, pool, 2, 1)
	require.Equal(t, before, env.pids(pool, 2), "no process restarts")
	callLease(t, held, "echo")
	require.NoError(t, held.Checkin(t.Context(), api.OutcomeOK))
}

// The process that is to replace the one that serves is ready, and waits for the end of a client's lease, when its
// agent is replaced.
func TestASuccessorThatWaitsForALeaseIsTakenOver(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	first := env.startAgent("successor", "--capacity", "4", "--keep-processes")
	s := echoSpec("successor", 1)
	s.Rotation.DrainTimeout = spec.Duration(time.Hour)
	pool := env.startPool(s)
	held, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "holder", TTL: 10 * time.Minute})
	require.NoError(t, err)
	callLease(t, held, "echo")
	_, err = pool.Restart(t.Context(), api.RestartRequest{Worker: new(int), Reason: "so that it has a successor"})
	require.NoError(t, err)
	// attempts that a busy Temporal has lost have used numbers, too
	successor := env.waitState(pool, 0, lifecycle.Draining).Successor
	require.Greater(t, successor, held.Incarnation)
	processes := hostProcesses("successor")
	first.stop()
	env.startAgent("successor", "--capacity", "4", "--keep-processes")
	st := env.waitState(pool, 0, lifecycle.Ready)
	require.Equal(t, successor, st.Incarnation, "no process is started")
	require.Contains(t, processes, st.PID)
	_, err = held.CallRaw(t.Context(), "echo", nil)
	require.Error(t, err, "the lease was on the process that was replaced")
	answer, err := pool.CallRaw(t.Context(), "echo", []byte(`"new"`))
	require.NoError(t, err)
	require.JSONEq(t, `"new"`, string(answer))
}

// Without a successor that takes them over, kept processes are replaced, and none is left over.
func TestKeptProcessesThatNobodyTakesOverAreReplaced(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	first := env.startAgent("keeper", "--capacity", "4", "--keep-processes")
	pool := env.startPool(echoSpec("lost", 2))
	env.waitReady(pool, 2)
	before := env.pids(pool, 2)
	first.stop()
	for _, pid := range before {
		require.True(t, running(t, pid), "the process is kept")
	}
	env.startAgent("keeper", "--capacity", "4") // does not take over
	after := env.waitFor(pool, "all workers have new processes", func(v api.PoolWorkers) bool {
		for _, w := range v.Workers {
			if !w.State.InService() || w.PID == before[w.Worker] {
				return false
			}
		}
		return true
	})
	require.Len(t, after.Workers, 2)
	for _, pid := range before {
		require.Eventually(t, func() bool { return !running(t, pid) }, waitTimeout, 20*time.Millisecond,
			"nothing is left over")
	}
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(env.dir, "keeper", "keeper.sock"))
		return errors.Is(err, fs.ErrNotExist)
	}, waitTimeout, 20*time.Millisecond, "the keeper has ended")
}

// The host's workflow is terminated while no agent runs. The next agent must have the workers notified of all earlier
// epochs.
func TestAHostsWorkflowThatIsTerminatedBetweenTwoAgentsForgetsNoWorker(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	current := env.startAgent("between", "--keep-processes")
	pool := env.startPool(echoSpec("between", 2))
	before := env.pids(pool, 2)
	terminate := func() {
		t.Helper()
		env.terminate(api.HostWorkflowID("between"))
	}
	current.stop()
	terminate()
	current = env.startAgent("between", "--keep-processes")
	requireTakenOver(t, pool, 2, 1)
	require.Equal(t, before, env.pids(pool, 2))

	kept := env.waitReady(pool, 2).Workers
	current.kill()
	terminate()
	env.startAgent("between", "--keep-processes")
	env.waitFor(pool, "the workers have new processes", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Incarnation > kept[0].Incarnation &&
			v.Workers[1].Incarnation > kept[1].Incarnation
	})
}
