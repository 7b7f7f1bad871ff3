package e2e

import (
	"fmt"
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

// signal signals a worker as a user's workflow does. Tempool's own clients send an order.
func (env *testEnv) signal(pool *tempool.Pool, slot int, signal, reason string) {
	env.t.Helper()
	env.send(api.WorkerWorkflowID(pool.Name(), slot), signal, api.Control{Reason: reason})
}

func TestASuspension(t *testing.T) {
	oneHost(t, "host").atOnce(map[string]func(*testEnv){
		"its hooks run and delay nothing":                       hooksOfASuspension,
		"a frozen worker is not probed, and continues or stops": frozenWorkers,
	})
}

// startLingering starts a call that lasts until the folder has a file "release", and returns once it is in flight.
func startLingering(t *testing.T, lease *tempool.Lease) (folder string, ended <-chan error) {
	t.Helper()
	folder = t.TempDir()
	answered := make(chan error, 1)
	go func() { answered <- lease.Call(t.Context(), "linger", []string{folder}, nil) }()
	require.Eventually(t, func() bool { return exists(folder, "begun") }, waitTimeout, 10*time.Millisecond,
		"a call is in flight")
	return folder, answered
}

func exists(folder, file string) bool {
	_, err := os.Stat(filepath.Join(folder, file))
	return err == nil
}

func hooksOfASuspension(env *testEnv) {
	t := env.t
	gateway := env.gatewayClient("host")
	for name, c := range map[string]struct {
		environment map[string]string
		problems    []string
	}{
		"well": {},
		"failing": {map[string]string{"suspend": "fail", "resume": "fail"},
			[]string{"worker.suspend failed: error: ValueError: the model is in use",
				"worker.resume failed: error: ValueError: the model is in use"}},
		"hanging": {map[string]string{"suspend": "hang", "resume": "hang"},
			[]string{"worker.suspend has not returned within 15s",
				"worker.resume failed: it did not return within health.timeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			notes := filepath.Join(env.dir, name)
			s := pythonSpec("hooks-"+name, 1, "suspend.py")
			s.Health.Interval = spec.Duration(time.Hour) // nor does a probe fail meanwhile
			if name == "hanging" {                       // a hook that returns has time on the slowest machine
				s.Health.Timeout = spec.Duration(15 * time.Second)
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
			waits := make(chan error, 1)
			go func() { waits <- pool.Call(t.Context(), "work", []int{0}, &after) }()
			require.Eventually(t, func() bool {
				return readScrape(t, gateway).has(1, "tempool_pool_queue_length", "pool", s.Pool.Name)
			}, waitTimeout, 50*time.Millisecond, "the pool has no other worker, so its call waits")
			env.signal(pool, 0, api.SignalResume, "")
			env.waitState(pool, 0, lifecycle.Ready)
			require.NoError(t, <-waits)
			require.Equal(t, pid, after, "the process serves on")
			ran, err := os.ReadFile(notes)
			require.NoError(t, err)
			require.Equal(t, "suspend\nresume\n", string(ran))
			const failed = lifecycle.EventKind(lifecycle.HookFailed)
			history := env.waitHistory(pool, 0, "each problem of a hook",
				func(history []lifecycle.Transition) bool { return len(noted(history, failed)) == len(c.problems) })
			for i, problem := range c.problems {
				require.Contains(t, noted(history, failed)[i], problem)
			}
			env.stopPool(pool)
		})
	}
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
	// a machine that stalls fails probes, too: no process is replaced for that
	s.Health.MaxFailures = 1_000
	s.Pool.StopGrace = spec.Duration(waitTimeout) // a process that was asked to stop exits without SIGKILL
	return s
}

// frozenWorker suspends the only worker of a pool, after it has started a process in a session of its own.
func (env *testEnv) frozenWorker(pool *tempool.Pool) (pid, descendant int) {
	env.t.Helper()
	require.NoError(env.t, pool.Call(env.t.Context(), "work", []int{0}, &pid))
	require.NoError(env.t, pool.Call(env.t.Context(), "descend", nil, &descendant))
	env.waitWorker(pool, 0, "is ill", // a machine that stalls may fail a probe
		func(w api.WorkerState) bool { return w.Health == lifecycle.Healthy })
	env.signal(pool, 0, api.SignalSuspend, "")
	env.waitState(pool, 0, lifecycle.Suspended)
	require.True(env.t, stoppedProcess(env.t, pid))
	require.True(env.t, stoppedProcess(env.t, descendant))
	return pid, descendant
}

func frozenWorkers(env *testEnv) {
	t := env.t
	withAndWithoutSurge(t, func(t *testing.T, surge bool) {
		env := env.in(t)
		s := freezingSpec(fmt.Sprint("freeze-", surge))
		s.Rotation.Surge = surge
		pool := env.startPool(s)
		pid, descendant := env.frozenWorker(pool)
		before := env.waitState(pool, 0, lifecycle.Suspended)
		sleep(t, 2*frozenProbe) // a probe would fail
		state := env.waitState(pool, 0, lifecycle.Suspended)
		require.Equal(t, before.Health, state.Health) // healthy, unless the machine stalled at the last moment
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
		require.Eventually(t, func() bool { return !running(t, pid) && !running(t, descendant) }, waitTimeout,
			20*time.Millisecond)

		env.signal(pool, 0, api.SignalRestart, "")
		env.waitState(pool, 0, lifecycle.Ready)
		pid, descendant = env.frozenWorker(pool)
		env.restart(pool, api.RestartRequest{Worker: new(int)})
		env.waitFor(pool, "a restart replaces the frozen process",
			func(v api.PoolWorkers) bool { return v.Ready == 1 && v.Workers[0].PID != pid })
		require.Eventually(t, func() bool { return !running(t, pid) && !running(t, descendant) }, waitTimeout,
			20*time.Millisecond)
	})
}
