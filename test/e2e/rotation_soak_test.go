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

// rotations is the number of rotations in TestManyRotationsDoNotGrowTheAgent; make soak uses a thousand.
var rotations = flag.Int("rotations", 30, "number of rotations of eight workers")

// TestManyRotationsDoNotGrowTheAgent rotates idle workers as fast as possible and compares the agent's footprint at
// several points, each with eight ready workers, no rotation and workflows that have just continued as new. The agent
// keeps about 1.5 KB for each of the last thousand processes.
func TestManyRotationsDoNotGrowTheAgent(t *testing.T) {
	m := rotationEnv{testEnv: newEnv(t)}
	// hostProcesses sees the processes of concurrent runs of this test, too
	m.host = fmt.Sprintf("shortlived-%d", os.Getpid())
	m.agent = m.testEnv.startAgent(m.host)
	m.spec = patient(spec.Default())
	m.spec.Pool.Name, m.spec.Pool.Size, m.spec.Pool.Command, m.spec.Pool.Protocol = "shortlived", 8, []string{"sleep",
		"1000"}, spec.ProtocolNone
	m.spec.Health.Kind, m.spec.Health.Command = spec.HealthExec, []string{"true"}
	m.spec.Rotation.MaxUnavailable = m.spec.Pool.Size
	m.pool = m.testEnv.startPool(m.spec)
	const remembered, slackBytes = 1_500, 1_500_000
	points := []int{*rotations / 3, *rotations}
	if *rotations >= 500 {
		points = []int{*rotations / 10, *rotations / 4, *rotations / 2, *rotations * 3 / 4, *rotations}
	}
	var first footprint
	for i, n := range points {
		m.waitForRotations(n)
		m.waitUntilStable()
		m.continueAsNew()
		if i == 0 {
			first = m.footprint()
			continue
		}
		bytes := first.HeapBytes + slackBytes + int64(m.countRotations()-points[0])*remembered
		for deadline := time.Now().Add(waitTimeout); ; sleep(t, time.Second) { // a cancelled Watch ends at its next heartbeat
			last := m.footprint()
			if last.HeapBytes < bytes && last.Goroutines < first.Goroutines+20 && last.Files < first.Files+10 &&
				last.Threads < first.Threads+10 {
				break
			}
			require.True(t, time.Now().Before(deadline), "the agent grew from %+v to %+v, with a limit of %d bytes", first, last,
				bytes)
		}
	}
}

// rotationEnv is a pool whose workers rotate continuously.
type rotationEnv struct {
	*testEnv
	agent      *agent
	host       string
	pool       *tempool.Pool
	spec       spec.Spec
	maxCounted int // the highest count so far
}

// setMaxUptime changes the workers' rotation.max_uptime.
func (m *rotationEnv) setMaxUptime(uptime time.Duration) {
	m.t.Helper()
	m.spec.Rotation.MaxUptime = spec.Duration(uptime)
	require.Eventually(m.t, func() bool { // a pool that is about to continue as new refuses updates
		_, err := m.pool.Apply(m.t.Context(), m.spec)
		return err == nil
	}, waitTimeout, 100*time.Millisecond)
}

// waitForRotations waits until there have been n rotations in total.
func (m *rotationEnv) waitForRotations(n int) {
	m.t.Helper()
	m.setMaxUptime(200 * time.Millisecond)
	for deadline := time.Now().Add(time.Duration(n)*3*time.Second + waitTimeout); m.countRotations() < n; sleep(m.t,
		200*time.Millisecond) {
		require.True(m.t, time.Now().Before(deadline), "timed out waiting for %d rotations", n)
	}
}

// countRotations counts rotations and requires that there were no restarts. If a worker does not answer, it returns the
// last count.
func (m *rotationEnv) countRotations() int {
	m.t.Helper()
	view, err := m.pool.Workers(m.t.Context())
	if err != nil {
		return m.maxCounted
	}
	sum := 0
	for _, worker := range view.Workers {
		require.Empty(m.t, worker.RestartsByReason, "worker %s", worker.Worker)
		for _, n := range worker.RotationsByReason {
			sum += int(n)
		}
	}
	m.maxCounted = max(m.maxCounted, sum)
	return m.maxCounted
}

// waitUntilStable stops rotations and waits until each worker has exactly one process.
func (m *rotationEnv) waitUntilStable() {
	m.t.Helper()
	m.setMaxUptime(24 * time.Hour)
	m.waitFor(m.pool, "all workers have the new max_uptime", func(v api.PoolWorkers) bool {
		for _, worker := range v.Workers {
			if worker.SpecVersion != v.SpecVersion || worker.Successor != 0 || len(worker.Draining) > 0 ||
				worker.Rotation != nil {
				return false
			}
		}
		return v.Ready == m.spec.Pool.Size && v.Rollout == nil
	})
	for deadline := time.Now().Add(waitTimeout); len(hostProcesses(m.host)) != m.spec.Pool.Size; sleep(m.t,
		100*time.Millisecond) {
		require.True(m.t, time.Now().Before(deadline), "processes of replaced workers remain: %v", hostProcesses(m.host))
	}
}

// continueAsNew makes the pool and all workers start new runs, whose input is their whole state.
func (m *rotationEnv) continueAsNew() {
	m.t.Helper()
	ids := []string{api.PoolWorkflowID("shortlived")}
	for slot := range m.spec.Pool.Size {
		ids = append(ids, api.WorkerWorkflowID("shortlived", slot))
	}
	before := map[string]string{}
	for _, id := range ids {
		before[id] = m.currentRun(id)
		require.NoError(m.t, m.client.Temporal().SignalWorkflow(m.t.Context(), id, "", api.SignalForceContinue,
			api.Control{}))
	}
	for _, id := range ids {
		for deadline := time.Now().Add(waitTimeout); m.currentRun(id) == before[id]; sleep(m.t, 50*time.Millisecond) {
			require.True(m.t, time.Now().Before(deadline), "%s does not continue as new", id)
		}
	}
}

// stateBytes returns the size of the input of a workflow's current run.
func (m *rotationEnv) stateBytes(id string) int {
	m.t.Helper()
	events := m.client.Temporal().GetWorkflowHistory(m.t.Context(), id, m.currentRun(id), false,
		enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	began, err := events.Next()
	require.NoError(m.t, err)
	return len(began.GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads()[0].GetData())
}

// footprint returns the footprint of the agent and of its workflows.
func (m *rotationEnv) footprint() footprint {
	m.t.Helper()
	f := m.agent.footprint(m.t)
	for slot := range m.spec.Pool.Size {
		f.WorkerBytes = max(f.WorkerBytes, m.stateBytes(api.WorkerWorkflowID("shortlived", slot)))
	}
	f.PoolBytes = m.stateBytes(api.PoolWorkflowID("shortlived"))
	require.Less(m.t, f.WorkerBytes, 40_000, "a worker keeps only its newest transitions")
	require.Less(m.t, f.PoolBytes, 20_000)
	m.t.Logf("after %d rotations: %+v, %d MB resident", m.countRotations(), f,
		residentBytes(m.t, m.agent.cmd.Process.Pid)/1e6)
	return f
}

// residentBytes returns the resident memory of a process.
func residentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	require.NoError(t, err)
	var size, resident int64
	_, err = fmt.Fscan(strings.NewReader(string(content)), &size, &resident)
	require.NoError(t, err)
	return resident * int64(os.Getpagesize())
}

// eventsOfACrash counts the events of one crash. At the maximum backoff a worker crashes once a minute
// (recovery.backoff_max), so a crash must cost less than 60 events to stay below one event a second.
func eventsOfACrash(env *testEnv) {
	t := env.t
	s := spec.Default()
	s.Pool.Name, s.Pool.Size, s.Pool.Command, s.Pool.Protocol = "crasher", 1, []string{"sleep", "0.1"}, spec.ProtocolNone
	s.Health.Kind, s.Health.Command = spec.HealthExec, []string{"true"}
	s.Recovery.BackoffMax, s.Recovery.MaxConsecutiveFailures = spec.Duration(300*time.Millisecond), 1000
	pool := env.beginPool(s)
	length := func(id string) float64 {
		n, byType := env.countEvents(id)
		return float64(n - repeatedTaskEvents(byType))
	}
	incarnation := func() int64 {
		st, err := pool.State(t.Context(), 0)
		if err != nil {
			return 0
		}
		return st.Incarnation
	}
	seen := func(least int64) (worker, pools float64, at int64) {
		require.Eventually(t, func() bool {
			if at = incarnation(); at < least {
				return false
			}
			worker, pools = length(api.WorkerWorkflowID("crasher", 0)), length(api.PoolWorkflowID("crasher"))
			return incarnation() == at // else crashes have gone on while the events were counted
		}, waitTimeout, 20*time.Millisecond)
		return worker, pools, at
	}
	worker, pools, from := seen(4)
	workerAfter, poolsAfter, to := seen(12)
	crashes := float64(to - from)
	each := (workerAfter - worker) / crashes
	t.Logf("a crash costs %.1f events of the worker and %.1f of its pool", each, (poolsAfter-pools)/crashes)
	require.Less(t, each, 60.0)
}

func heldStarts(env *testEnv) {
	t := env.t
	s := pythonSpec("held", 3, "broken.py")
	pool := env.beginPool(s)
	env.waitFor(pool, "the starts are held, but for those of one worker, which tests the breaker",
		func(v api.PoolWorkers) bool {
			held := 0
			for _, worker := range v.Workers {
				if worker.State == lifecycle.Pending && strings.Contains(worker.Reason, "breaker open") {
					held++
				}
			}
			return len(v.Workers) == 3 && held >= 2
		})
	require.Eventually(t, func() bool { // the breaker closes for a moment when a worker tests it
		status, err := pool.Status(t.Context())
		return err == nil && status.StartsPaused != ""
	}, waitTimeout, 50*time.Millisecond)
	s.Pool.Command = echoSpec("held", 3).Pool.Command
	_, err := pool.Apply(t.Context(), s)
	require.NoError(t, err)
	env.waitFor(pool, "the new spec runs", func(v api.PoolWorkers) bool {
		return v.Ready == 3 && v.Rollout == nil && v.Workers[0].SpecVersion == 2 && v.Workers[2].SpecVersion == 2
	})
}

func startRate(env *testEnv) {
	t := env.t
	s := echoSpec("paced", 4)
	s.Start.RatePerSecond = 2
	began := time.Now()
	env.startPool(s)
	require.GreaterOrEqual(t, time.Since(began), 1500*time.Millisecond,
		"the fourth may start a second and a half after the first")
}
