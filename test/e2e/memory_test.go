package e2e

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/spec"
)

// steady is how long pools of large programs must run without a replacement; make soak runs them for an hour.
var steady = flag.Duration("steady", 90*time.Second, "duration of the tests of large programs on the defaults")

// callsOfLarge is how often a large program is called in a second: in an hour fewer times than rotation.max_requests,
// less its jitter, by default.
const callsOfLarge = 2

// TestALeakIsReplacedOnTheDefaults leaks about 20 MB a second, by few calls: a slow machine makes them all.
func TestALeakIsReplacedOnTheDefaults(t *testing.T) {
	env := oneHost(t, "leaking")
	s := pythonSpec("leaking", 1, "leak.py")
	s.Pool.Env["LEAK"] = "10"
	pool := env.startPool(s)
	l := startLoad(t, env.gatewayClient("leaking"), "/v1/pools/leaking/call/leak", 2, 1)
	view := env.waitFor(pool, "it was replaced", func(v api.PoolWorkers) bool { // the counters may be newer than the state
		return v.Ready == 1 && v.Workers[0].Rotations > 0 && v.Workers[0].LastRotation != nil
	})
	l.stop()
	require.Zero(t, l.failed.Load(), "of %d calls: %s", l.calls.Load(), l.firstFailure())
	worker := view.Workers[0]
	require.Empty(t, worker.RestartsByReason)
	require.EqualValues(t, 1, worker.RotationsByReason["memory"], "%+v", worker.LastRotation)
	require.Contains(t, worker.LastRotation.Reason, `without levelling off (limit 537 MB, rotation.max_memory = "auto")`)
	require.Less(t, worker.PeakMemoryBytes, int64(1500e6))
	t.Logf("replaced at %d MB: %s", worker.PeakMemoryBytes/1e6, worker.LastRotation.Reason)
}

// TestALargeProgramIsNotReplacedForItsMemory runs programs that need much memory all the time, on the defaults but for
// time-outs, and for checkpoints that show a baseline soon after the host knows it.
func TestALargeProgramIsNotReplacedForItsMemory(t *testing.T) {
	need.Program(t, "chromium")
	env := oneHost(t, "large")
	client := env.gatewayClient("large")
	loads := map[*tempool.Pool]*loadGenerator{}
	for name, c := range map[string]struct{ script, method string }{
		"python":   {"large.py", "ask"},
		"chromium": {"../../../examples/render/worker.py", "render"}, // from the folder testdata
	} {
		s := pythonSpec(name, 1, c.script) // calls one after the other may leave a second worker without any
		s.Health.Checkpoint = spec.Duration(30 * time.Second)
		loads[env.startPool(s)] = startLoad(t, client, "/v1/pools/"+name+"/call/"+c.method, callsOfLarge, 1)
	}
	unreplaced := func(v api.PoolWorkers) {
		for _, worker := range v.Workers {
			require.Empty(t, worker.RotationsByReason, "%s: %+v", worker.Worker, worker.LastRotation)
			require.Empty(t, worker.RestartsByReason, worker.Worker)
		}
	}
	for end := time.Now().Add(*steady); time.Now().Before(end); sleep(t, time.Second) {
		for pool := range loads {
			if view, err := pool.Workers(t.Context()); err == nil {
				unreplaced(view)
			}
		}
	}
	for pool, l := range loads {
		last := env.waitFor(pool, "the host has reported a baseline: it has served calls for more than a minute",
			func(v api.PoolWorkers) bool {
				return v.Ready == 1 && v.Workers[0].BaselineBytes > 0
			})
		unreplaced(last)
		l.stop()
		require.Zero(t, l.failed.Load(), "of %d calls: %s", l.calls.Load(), l.firstFailure())
		worker := last.Workers[0]
		require.Greater(t, worker.CurrentMemoryBytes, int64(100e6), "the program is large")
		require.GreaterOrEqual(t, worker.MaxMemoryBytes, 3*worker.BaselineBytes)
		t.Logf("%s: %d MB (%s), baseline %d MB", worker.Worker, worker.CurrentMemoryBytes/1e6, worker.MemorySource,
			worker.BaselineBytes/1e6)
	}
}
