package e2e

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// rotations is how many TestManyRotationsLeaveTheAgentAsItWas waits for; make soak waits for a thousand.
var rotations = flag.Int("rotations", 96, "how many rotations eight workers have to go through")

// TestManyRotationsLeaveTheAgentAsItWas has workers that do nothing replaced as fast as that goes. The bound
// leaves room for what warms up: a hundred rotations show only a coarse leak, a thousand also one of some 20 KB for each.
func TestManyRotationsLeaveTheAgentAsItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("mayfly")
	s := spec.Default()
	s.Pool.Name, s.Pool.Size, s.Pool.Command, s.Pool.Protocol = "mayfly", 8, []string{"sleep", "1000"}, spec.ProtocolNone
	s.Health.Kind, s.Health.Command = spec.HealthExec, []string{"true"}
	s.Rotation.MaxUptime, s.Rotation.MaxUnavailable = spec.Duration(200*time.Millisecond), 8
	pool := w.start(s)
	turned := func(n int) (f footprint) {
		deadline := time.Now().Add(time.Duration(n)*time.Second + patience)
		for {
			require.True(t, time.Now().Before(deadline), "gave up waiting for %d rotations", n)
			var sum int64
			if view, err := pool.View(t.Context()); err == nil {
				for _, worker := range view.Workers {
					require.Empty(t, worker.RestartsByReason, "worker %s", worker.Worker)
					sum += worker.RotationsByReason[string(tempool.CauseUptime)]
				}
			}
			if sum >= int64(n) {
				f = a.footprint(t)
				t.Logf("after %d rotations the agent holds %d KB of heap and %d goroutines, and %d MB are resident",
					sum, f.HeapBytes/1000, f.Goroutines, residentBytes(t, a.cmd.Process.Pid)/1e6)
				return f
			}
			pause(t, 200*time.Millisecond)
		}
	}
	early := turned(*rotations / 3)
	late := turned(*rotations)
	require.Less(t, late.HeapBytes, early.HeapBytes+8_000_000+int64(*rotations)*3_000)
	require.Less(t, late.Goroutines, early.Goroutines+100, "some of the eight may be between two incarnations, or have two")
	require.LessOrEqual(t, len(bearers("mayfly")), 3*s.Pool.Size, "what has left is gone")
}

// residentBytes is what a process holds in memory.
func residentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	require.NoError(t, err)
	var size, resident int64
	_, err = fmt.Fscan(strings.NewReader(string(content)), &size, &resident)
	require.NoError(t, err)
	return resident * int64(os.Getpagesize())
}

// TestAWorkerThatCrashesAgainAndAgainWritesLittleHistory counts what one crash costs. In steady backoff there is one a minute
// (recovery.backoff_max), so that it must cost less than 60 events for less than one a second.
func TestAWorkerThatCrashesAgainAndAgainWritesLittleHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("crasher")
	s := spec.Default()
	s.Pool.Name, s.Pool.Size, s.Pool.Command, s.Pool.Protocol = "crasher", 1, []string{"sleep", "0.1"}, spec.ProtocolNone
	s.Health.Kind, s.Health.Command = spec.HealthExec, []string{"true"}
	s.Recovery.BackoffMax, s.Recovery.MaxConsecutiveFailures = spec.Duration(300*time.Millisecond), 1000
	require.NoError(t, w.client.StartPool(t.Context(), tempool.PoolStart{Pool: "crasher", Spec: s}))
	pool := w.client.Pool("crasher")
	length := func(id string) float64 {
		description, err := w.client.Temporal().DescribeWorkflowExecution(t.Context(), id, "")
		require.NoError(t, err)
		return float64(description.GetWorkflowExecutionInfo().GetHistoryLength())
	}
	seen := func(incarnation int64) (worker, pools float64, at int64) {
		require.Eventually(t, func() bool {
			st, err := pool.State(t.Context(), 0)
			at = st.Incarnation
			return err == nil && at >= incarnation
		}, patience, 20*time.Millisecond)
		return length(tempool.WorkerWorkflowID("crasher", 0)), length(tempool.PoolWorkflowID("crasher")), at
	}
	worker, pools, from := seen(4)
	workerAfter, poolsAfter, to := seen(12)
	crashes := float64(to - from)
	each := (workerAfter - worker) / crashes
	t.Logf("a crash costs %.1f events of the worker and %.1f of its pool", each, (poolsAfter-pools)/crashes)
	require.Less(t, each, 60.0)
}

func TestAPoolWhoseStartsFailHoldsThemUntilItsSpecIsMended(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("held")
	s := python("held", 3, "broken.py")
	require.NoError(t, w.client.StartPool(t.Context(), tempool.PoolStart{Pool: "held", Spec: s}))
	pool := w.client.Pool("held")
	w.until(pool, "all starts are held", func(v tempool.PoolView) bool {
		for _, worker := range v.Workers {
			if worker.State != lifecycle.Pending || !strings.Contains(worker.Reason, "the pool holds its starts") {
				return false
			}
		}
		return len(v.Workers) == 3
	})
	status, err := pool.Status(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, status.Held)
	s.Pool.Command = echo("held", 3).Pool.Command
	_, err = pool.Apply(t.Context(), s)
	require.NoError(t, err)
	w.until(pool, "the new spec runs", func(v tempool.PoolView) bool {
		return v.Ready == 3 && v.Rollout == nil && v.Workers[0].SpecVersion == 2 && v.Workers[2].SpecVersion == 2
	})
}

func TestStartsOfAPoolKeepToTheirRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("paced")
	s := echo("paced", 4)
	s.Start.RatePerSecond = 2
	began := time.Now()
	w.start(s)
	require.GreaterOrEqual(t, time.Since(began), 1500*time.Millisecond, "the fourth may start a second and a half after the first")
}
