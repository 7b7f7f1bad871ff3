package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// requireHookFailed waits until a worker's history notes so many problems of hooks, and returns their reasons.
func requireHookFailed(t *testing.T, pool *tempool.Pool, times int) (reasons []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		history, err := pool.History(t.Context(), 0)
		reasons = nil
		for _, transition := range history {
			if transition.Event == lifecycle.EventKind(lifecycle.HookFailed) {
				reasons = append(reasons, transition.Reason)
			}
		}
		return err == nil && len(reasons) == times
	}, waitTimeout, 20*time.Millisecond, "the history notes %v", &reasons)
	return reasons
}

func TestHooksOfASuspensionRunAndHoldNothingUp(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("hooks")
	for name, c := range map[string]struct {
		environment map[string]string
		problems    []string
	}{
		"well":    {},
		"failing": {map[string]string{"suspend": "fail", "resume": "fail"}, []string{"worker.suspend failed: error: ValueError: the model is in use", "worker.resume failed: error: ValueError: the model is in use"}},
		"hanging": {map[string]string{"suspend": "hang", "resume": "hang"}, []string{"worker.suspend has not returned within 1s", "worker.resume failed: it has not returned within health.timeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			notes := filepath.Join(env.dir, name)
			s := pythonSpec("hooks-"+name, 1, "suspend.py")
			if s.Health.Timeout = spec.Duration(waitTimeout); name == "hanging" { // a hook that returns has time on the slowest machine
				s.Health.Timeout = spec.Duration(time.Second)
			}
			s.Pool.Env["NOTES"] = notes
			for key, value := range c.environment {
				s.Pool.Env[key] = value
			}
			pool := env.startPool(s)
			var pid, after int
			require.NoError(t, pool.Call(t.Context(), "work", []int{0}, &pid))
			env.signal(pool, 0, api.SignalSuspend, "")
			env.waitState(pool, 0, lifecycle.Suspended)
			env.signal(pool, 0, api.SignalResume, "")
			env.waitState(pool, 0, lifecycle.Ready)
			require.NoError(t, pool.Call(t.Context(), "work", []int{0}, &after))
			require.Equal(t, pid, after, "the process serves on")
			ran, err := os.ReadFile(notes)
			require.NoError(t, err)
			require.Equal(t, "suspend\nresume\n", string(ran))
			reasons := requireHookFailed(t, pool, len(c.problems))
			for i, problem := range c.problems {
				require.Contains(t, reasons[i], problem)
			}
			require.NoError(t, env.stopPool(pool))
		})
	}
}

func (env *testEnv) stopPool(pool *tempool.Pool) error {
	_, err := pool.Stop(env.t.Context(), "")
	return err
}

func stoppedProcess(t *testing.T, pid int) bool {
	t.Helper()
	entry, err := tree.ReadEntry(pid)
	require.NoError(t, err)
	return entry != nil && entry.Stopped
}

// frozenProbe is how long a probe of a frozen process would take to fail.
const frozenProbe = 3 * time.Second

func freezingSpec(name string) spec.Spec {
	s := pythonSpec(name, 1, "suspend.py")
	s.Pool.OnSuspend = spec.SuspendFreeze
	s.Health.Interval, s.Health.Timeout = spec.Duration(200*time.Millisecond), spec.Duration(frozenProbe)
	s.Health.MaxFailures = 1_000                  // a machine that stalls fails probes, too: no process is replaced for that
	s.Pool.StopGrace = spec.Duration(waitTimeout) // a process that has been asked to stop ends by itself
	return s
}

// frozenWorker suspends the only worker of a pool, after it has started a process in a session of its own.
func (env *testEnv) frozenWorker(pool *tempool.Pool) (pid, descendant int) {
	env.t.Helper()
	require.NoError(env.t, pool.Call(env.t.Context(), "work", []int{0}, &pid))
	require.NoError(env.t, pool.Call(env.t.Context(), "descend", nil, &descendant))
	require.Eventually(env.t, func() bool {
		state, err := pool.State(env.t.Context(), 0)
		return err == nil && state.Health == lifecycle.Healthy
	}, waitTimeout, 20*time.Millisecond, "a machine that stalls may fail a probe")
	env.signal(pool, 0, api.SignalSuspend, "")
	env.waitState(pool, 0, lifecycle.Suspended)
	require.True(env.t, stoppedProcess(env.t, pid))
	require.True(env.t, stoppedProcess(env.t, descendant))
	return pid, descendant
}

func TestAFrozenWorkerIsNotProbedAndGoesOnOrStops(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("freeze")
	pool := env.startPool(freezingSpec("freeze"))
	pid, descendant := env.frozenWorker(pool)
	sleep(t, 2*frozenProbe) // a probe would fail
	state := env.waitState(pool, 0, lifecycle.Suspended)
	require.Equal(t, lifecycle.Healthy, state.Health)
	require.True(t, stoppedProcess(t, pid))
	env.signal(pool, 0, api.SignalResume, "")
	env.waitState(pool, 0, lifecycle.Ready)
	require.False(t, stoppedProcess(t, pid))
	require.False(t, stoppedProcess(t, descendant))
	var after int
	require.NoError(t, pool.Call(t.Context(), "work", []int{0}, &after))
	require.Equal(t, pid, after)

	pid, descendant = env.frozenWorker(pool)
	env.signal(pool, 0, api.SignalStop, "")
	stopped := env.waitState(pool, 0, lifecycle.Stopped)
	require.Equal(t, lifecycle.Stopped, stopped.State, "it handles TERM and need not be killed")
	require.Eventually(t, func() bool { return !running(t, pid) && !running(t, descendant) }, waitTimeout, 20*time.Millisecond)

	worker := 0
	_, err := pool.Restart(t.Context(), api.RestartRequest{Worker: &worker})
	require.NoError(t, err)
	env.waitState(pool, 0, lifecycle.Ready)
	pid, descendant = env.frozenWorker(pool)
	_, err = pool.Restart(t.Context(), api.RestartRequest{Worker: &worker})
	require.NoError(t, err)
	env.waitFor(pool, "a restart replaces the frozen process", func(v api.PoolWorkers) bool { return v.Ready == 1 && v.Workers[0].PID != pid })
	require.Eventually(t, func() bool { return !running(t, pid) && !running(t, descendant) }, waitTimeout, 20*time.Millisecond)
}

func TestAKilledAgentLeavesNoFrozenProcess(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	current := env.startAgent("freeze-kill")
	pool := env.startPool(freezingSpec("freeze-kill"))
	pid, descendant := env.frozenWorker(pool)
	current.kill()
	require.Eventually(t, func() bool { return !running(t, pid) && !running(t, descendant) }, waitTimeout, 20*time.Millisecond, "the reaper has killed both")
	env.startAgent("freeze-kill")
	env.waitFor(pool, "the next process serves", func(v api.PoolWorkers) bool { return v.Ready == 1 && v.Workers[0].Incarnation == 2 })
}

func TestAFrozenProcessIsHandedOverAndResumes(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	current := env.startAgent("freeze-keep", "--keep-processes")
	pool := env.startPool(freezingSpec("freeze-keep"))
	pid, descendant := env.frozenWorker(pool)
	current.stop()
	require.True(t, stoppedProcess(t, pid), "the keeper holds it as it is")
	env.startAgent("freeze-keep", "--keep-processes")
	requireTakenOver(t, pool, 1, 1)
	require.Equal(t, pid, env.waitState(pool, 0, lifecycle.Suspended).PID)
	require.True(t, stoppedProcess(t, pid))
	env.signal(pool, 0, api.SignalResume, "")
	env.waitState(pool, 0, lifecycle.Ready)
	require.False(t, stoppedProcess(t, descendant))
	var after int
	require.Eventually(t, func() bool { return pool.Call(t.Context(), "work", []int{0}, &after) == nil }, waitTimeout, 50*time.Millisecond)
	require.Equal(t, pid, after, "the process is the same")
}
