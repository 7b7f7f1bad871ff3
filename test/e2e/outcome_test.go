package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// waitTransition waits until a worker's history has a transition into a state whose reason contains a text. Unlike
// waitState, it misses no state that the worker has left again.
func (env *testEnv) waitTransition(pool *tempool.Pool, slot int, to lifecycle.State, reason string) {
	env.t.Helper()
	env.waitHistory(pool, slot, fmt.Sprintf("%s because of %q", to, reason), func(history []lifecycle.Transition) bool {
		return slices.ContainsFunc(history, func(step lifecycle.Transition) bool {
			return step.To == to && !step.IsNote() && strings.Contains(step.Reason, reason)
		})
	})
}

// obstinateSpec is the spec of a pool whose only worker does not end on SIGTERM.
func obstinateSpec(name string, surge bool) spec.Spec {
	s := pythonSpec(name, 1, "ends.py")
	s.Pool.Env["OBSTINATE"], s.Pool.StopGrace, s.Rotation.Surge = "1", spec.Duration(500*time.Millisecond), surge
	return s
}

// requireRecordedAsKilled requires that a worker's history says that a process did not stop within its grace.
func (env *testEnv) requireRecordedAsKilled(pool *tempool.Pool) {
	env.t.Helper()
	history := env.history(pool, 0)
	require.True(env.t, slices.ContainsFunc(history, func(step lifecycle.Transition) bool {
		killed := step.To == lifecycle.Killed && step.Metadata["forced"] == "true"
		return killed || step.Event == lifecycle.EventKind(lifecycle.ProcessKilled) &&
			strings.Contains(step.Reason, "pool.stop_grace")
	}), "%+v", history)
}

// A process that does not end on SIGTERM is killed after its grace, and counted as killed, whatever ended it: a
// restart, with a successor beside it and without; the end of drain_timeout, under a client's lease; the stop of the
// pool; the stop of its agent.
func TestAProcessThatMustBeKilledIsCountedAsKilled(t *testing.T) {
	env := newEnv(t)
	leaving := env.startAgent("killing")
	gateway := env.gatewayClient("killing")
	counted := func(pool *tempool.Pool) {
		t.Helper()
		require.Eventually(t, func() bool {
			return readScrape(t, gateway).has(1, "tempool_pool_processes_ended_total", "pool", pool.Name(), "outcome", "killed")
		}, waitTimeout, 100*time.Millisecond, "the metrics count it")
	}
	replaced := func(pool *tempool.Pool, before int64, host string) {
		t.Helper()
		view := env.waitFor(pool, "the old process was killed", func(v api.PoolWorkers) bool {
			w := v.Workers[0]
			return v.Ready == 1 && w.Incarnation > before && w.Host == host && w.EndedByOutcome["killed"] > 0
		})
		require.Equal(t, map[string]int64{"killed": 1}, view.Workers[0].EndedByOutcome, "it is counted once")
		env.requireRecordedAsKilled(pool)
	}
	for name, c := range map[string]struct{ surge, leased bool }{
		"surge": {true, false}, "drain-timeout-in-place": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := obstinateSpec(name, c.surge)
			s.Rotation.DrainTimeout = spec.Duration(500 * time.Millisecond)
			pool := env.startPool(s)
			before := env.waitState(pool, 0, lifecycle.Ready).Incarnation
			if c.leased {
				env.checkout(pool, tempool.CheckoutOptions{Holder: "me", Wait: waitTimeout}) // and never returned
			}
			env.restart(pool, api.RestartRequest{Reason: "by hand"})
			replaced(pool, before, "killing")
			counted(pool)
			env.stopPool(pool)
		})
	}
	t.Run("stop of the pool", func(t *testing.T) {
		pool := env.startPool(obstinateSpec("stopped", true))
		env.stopPool(pool)
		env.requireRecordedAsKilled(pool)
		counted(pool)
	})
	t.Run("stop of the agent", func(t *testing.T) {
		pool := env.startPool(obstinateSpec("moved", true))
		before := env.waitState(pool, 0, lifecycle.Ready).Incarnation
		env.startAgent("staying")
		leaving.stop()
		replaced(pool, before, "staying")
	})
}
