package e2e

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// rotations is how many TestManyRotationsLeaveTheAgentAsItWas waits for; make soak waits for a thousand.
var rotations = flag.Int("rotations", 60, "how many rotations eight workers have to go through")

// TestManyRotationsLeaveTheAgentAsItWas has workers that do nothing replaced as fast as that goes, and looks at what is left of it when
// nothing is replaced for a moment: with eight workers that serve and workflows that have just continued as new, it is each
// time the same agent. What it remembers of processes that have ended grows until they are a thousand, by some 1.5 KB for each.
func TestManyRotationsLeaveTheAgentAsItWas(t *testing.T) {
	t.Parallel()
	m := mayflies{world: newWorld(t)}
	m.host = fmt.Sprintf("mayfly-%d", os.Getpid()) // the same test may run beside this one, and bearers sees all processes
	m.agent = m.world.agent(m.host)
	m.spec = spec.Default()
	m.spec.Pool.Name, m.spec.Pool.Size, m.spec.Pool.Command, m.spec.Pool.Protocol = "mayfly", 8, []string{"sleep", "1000"}, spec.ProtocolNone
	m.spec.Health.Kind, m.spec.Health.Command = spec.HealthExec, []string{"true"}
	m.spec.Rotation.MaxUnavailable = m.spec.Pool.Size
	m.pool = m.world.start(m.spec)
	const remembered, slackBytes = 1_500, 1_500_000
	points := []int{*rotations / 3, *rotations}
	if *rotations >= 500 {
		points = []int{*rotations / 10, *rotations / 4, *rotations / 2, *rotations * 3 / 4, *rotations}
	}
	var first footprint
	for i, n := range points {
		m.turn(n)
		m.rest()
		m.continueAsNew()
		if i == 0 {
			first = m.footprint()
			continue
		}
		bytes := first.HeapBytes + slackBytes + int64(m.rotated()-points[0])*remembered
		for deadline := time.Now().Add(patience); ; pause(t, time.Second) { // a Watch that is called off hears of it with its next heartbeat
			last := m.footprint()
			if last.HeapBytes < bytes && last.Goroutines < first.Goroutines+20 && last.Files < first.Files+10 && last.Threads < first.Threads+10 {
				break
			}
			require.True(t, time.Now().Before(deadline), "the agent has grown from %+v to %+v; %d bytes would do", first, last, bytes)
		}
	}
}

// mayflies are a pool whose workers have short lives.
type mayflies struct {
	*world
	agent *agent
	host  string
	pool  *tempool.Pool
	spec  spec.Spec
	most  int // rotations that were counted
}

// live gives the workers another length of life.
func (m *mayflies) live(uptime time.Duration) {
	m.t.Helper()
	m.spec.Rotation.MaxUptime = spec.Duration(uptime)
	require.Eventually(m.t, func() bool { // a pool that continues as new refuses what would be lost
		_, err := m.pool.Apply(m.t.Context(), m.spec)
		return err == nil
	}, patience, 100*time.Millisecond)
}

// turn waits until there have been so many rotations in all.
func (m *mayflies) turn(n int) {
	m.t.Helper()
	m.live(200 * time.Millisecond)
	for deadline := time.Now().Add(time.Duration(n)*3*time.Second + patience); m.rotated() < n; pause(m.t, 200*time.Millisecond) {
		require.True(m.t, time.Now().Before(deadline), "gave up waiting for %d rotations", n)
	}
}

// rotated counts rotations, and sees that nothing ended otherwise. A worker that does not answer is not counted for the moment.
func (m *mayflies) rotated() int {
	m.t.Helper()
	view, err := m.pool.Workers(m.t.Context())
	if err != nil {
		return m.most
	}
	sum := 0
	for _, worker := range view.Workers {
		require.Empty(m.t, worker.RestartsByReason, "worker %s", worker.Worker)
		for _, n := range worker.RotationsByReason {
			sum += int(n)
		}
	}
	m.most = max(m.most, sum)
	return m.most
}

// rest lets the workers live, and waits until each has its one process and nothing else.
func (m *mayflies) rest() {
	m.t.Helper()
	m.live(24 * time.Hour)
	m.until(m.pool, "all workers have a life of a day before them", func(v api.PoolWorkers) bool {
		for _, worker := range v.Workers {
			if worker.SpecVersion != v.SpecVersion || worker.Successor != 0 || len(worker.Leaving) > 0 || worker.Rotation != nil {
				return false
			}
		}
		return v.Ready == m.spec.Pool.Size && v.Rollout == nil
	})
	for deadline := time.Now().Add(patience); len(bearers(m.host)) != m.spec.Pool.Size; pause(m.t, 100*time.Millisecond) {
		require.True(m.t, time.Now().Before(deadline), "what has left is gone, but there are processes %v", bearers(m.host))
	}
}

// continueAsNew has the pool and all workers begin new runs, whose input is all that they know.
func (m *mayflies) continueAsNew() {
	m.t.Helper()
	ids := []string{api.PoolWorkflowID("mayfly")}
	for slot := range m.spec.Pool.Size {
		ids = append(ids, api.WorkerWorkflowID("mayfly", slot))
	}
	before := map[string]string{}
	for _, id := range ids {
		before[id] = m.run(id)
		require.NoError(m.t, m.client.Temporal().SignalWorkflow(m.t.Context(), id, "", api.SignalForceContinue, api.Control{}))
	}
	for _, id := range ids {
		for deadline := time.Now().Add(patience); m.run(id) == before[id]; pause(m.t, 50*time.Millisecond) {
			require.True(m.t, time.Now().Before(deadline), "%s does not continue as new", id)
		}
	}
}

// run is the current run of a workflow.
func (m *mayflies) run(id string) string {
	m.t.Helper()
	description, err := m.client.Temporal().DescribeWorkflowExecution(m.t.Context(), id, "")
	require.NoError(m.t, err)
	return description.GetWorkflowExecutionInfo().GetExecution().GetRunId()
}

// stateBytes is the size of what a workflow's current run began with.
func (m *mayflies) stateBytes(id string) int {
	m.t.Helper()
	events := m.client.Temporal().GetWorkflowHistory(m.t.Context(), id, m.run(id), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	began, err := events.Next()
	require.NoError(m.t, err)
	return len(began.GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads()[0].GetData())
}

// footprint is what the agent holds now, and what its workflows have to remember.
func (m *mayflies) footprint() footprint {
	m.t.Helper()
	f := m.agent.footprint(m.t)
	for slot := range m.spec.Pool.Size {
		f.WorkerBytes = max(f.WorkerBytes, m.stateBytes(api.WorkerWorkflowID("mayfly", slot)))
	}
	f.PoolBytes = m.stateBytes(api.PoolWorkflowID("mayfly"))
	require.Less(m.t, f.WorkerBytes, 40_000, "a worker knows its newest transitions, and no more of its past")
	require.Less(m.t, f.PoolBytes, 20_000)
	m.t.Logf("after %d rotations: %+v, and %d MB are resident", m.rotated(), f, residentBytes(m.t, m.agent.cmd.Process.Pid)/1e6)
	return f
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
	require.NoError(t, w.client.StartPool(t.Context(), api.PoolStart{Pool: "crasher", Spec: s}))
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
		return length(api.WorkerWorkflowID("crasher", 0)), length(api.PoolWorkflowID("crasher")), at
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
	require.NoError(t, w.client.StartPool(t.Context(), api.PoolStart{Pool: "held", Spec: s}))
	pool := w.client.Pool("held")
	w.until(pool, "all starts are held", func(v api.PoolWorkers) bool {
		for _, worker := range v.Workers {
			if worker.State != lifecycle.Pending || !strings.Contains(worker.Reason, "breaker open") {
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
	w.until(pool, "the new spec runs", func(v api.PoolWorkers) bool {
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
