package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
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
	m.spec = shellSpec("shortlived", 8, "exec sleep 1000")
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
		rotated := m.waitUntilStable()
		m.continueAsNew(api.PoolWorkflowID("shortlived"))
		for slot := range m.spec.Pool.Size {
			m.continueAsNew(api.WorkerWorkflowID("shortlived", slot))
		}
		bytes := first.HeapBytes + slackBytes + int64(rotated-points[0])*remembered
		var last footprint
		require.Eventually(t, func() bool { // a cancelled Watch ends at its next heartbeat
			last = m.agent.footprint(t)
			return i == 0 || last.HeapBytes < bytes && last.Goroutines < first.Goroutines+20 &&
				last.Files < first.Files+10 && last.Threads < first.Threads+10
		}, waitTimeout, time.Second, "the agent grew from %+v to %+v, with a limit of %d bytes", first, &last, bytes)
		t.Logf("after %d rotations: %+v", rotated, last)
		if i == 0 {
			first = last
		}
	}
}

// rotationEnv is a pool whose workers rotate continuously.
type rotationEnv struct {
	*testEnv
	agent *agent
	host  string
	pool  *tempool.Pool
	spec  spec.Spec
}

// setMaxUptime changes the workers' rotation.max_uptime.
func (m *rotationEnv) setMaxUptime(uptime time.Duration) {
	m.t.Helper()
	m.spec.Rotation.MaxUptime = spec.Duration(uptime)
	m.repeat(func(ctx context.Context) error { // a pool that is about to continue as new refuses updates
		_, err := m.pool.Apply(ctx, m.spec)
		return err
	})
}

// waitForRotations waits until there have been n rotations in total.
func (m *rotationEnv) waitForRotations(n int) {
	m.t.Helper()
	m.setMaxUptime(200 * time.Millisecond)
	m.waitForWithin(time.Duration(n)*3*time.Second+waitTimeout, m.pool, fmt.Sprintf("there were %d rotations", n),
		func(v api.PoolWorkers) bool { return m.countRotations(v) >= n })
}

// countRotations counts rotations and requires that there were no restarts.
func (m *rotationEnv) countRotations(v api.PoolWorkers) (sum int) {
	m.t.Helper()
	for _, worker := range v.Workers {
		require.Empty(m.t, worker.RestartsByReason, "worker %s", worker.Worker)
		for _, n := range worker.RotationsByReason {
			sum += int(n)
		}
	}
	return sum
}

// waitUntilStable stops rotations, waits until each worker has exactly one process, and counts the rotations.
func (m *rotationEnv) waitUntilStable() int {
	m.t.Helper()
	m.setMaxUptime(24 * time.Hour)
	stable := m.waitFor(m.pool, "all workers have the new max_uptime", func(v api.PoolWorkers) bool {
		for _, worker := range v.Workers {
			if worker.SpecVersion != v.SpecVersion || worker.Successor != 0 || len(worker.Draining) > 0 ||
				worker.Rotation != nil {
				return false
			}
		}
		return v.Ready == m.spec.Pool.Size && v.Rollout == nil
	})
	var processes []int
	require.Eventually(m.t, func() bool {
		processes = hostProcesses(m.host)
		return len(processes) == m.spec.Pool.Size
	}, waitTimeout, 100*time.Millisecond, "processes of replaced workers remain: %v", &processes)
	return m.countRotations(stable)
}
