package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// loadGenerator makes calls of a pool at a steady rate until it is stopped.
type loadGenerator struct {
	made, failed atomic.Int64
	firstError   atomic.Pointer[string] // the first failure
	cancel       context.CancelFunc
	ended        chan struct{}
}

// startLoad puts a pool under so many calls a second, so many of them at once.
func startLoad(t *testing.T, client *http.Client, path string, perSecond, atOnce int) *loadGenerator {
	ctx, cancel := context.WithCancel(t.Context())
	l := &loadGenerator{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		ticker := time.NewTicker(time.Second * time.Duration(atOnce) / time.Duration(perSecond))
		defer ticker.Stop()
		var calls sync.WaitGroup
		defer calls.Wait()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			for range atOnce {
				calls.Go(func() { l.call(client, path) })
			}
		}
	}()
	t.Cleanup(l.stop)
	return l
}

func (l *loadGenerator) call(client *http.Client, path string) {
	l.made.Add(1)
	response, err := client.Post("http://gateway"+path, "application/json", strings.NewReader("1"))
	what := ""
	if err != nil {
		what = err.Error()
	} else {
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			what = fmt.Sprintf("%d: %s", response.StatusCode, body)
		}
	}
	if what != "" {
		l.failed.Add(1)
		l.firstError.CompareAndSwap(nil, &what)
	}
}

func (l *loadGenerator) stop() {
	l.cancel()
	<-l.ended
}

func (l *loadGenerator) firstFailure() string {
	if what := l.firstError.Load(); what != nil {
		return *what
	}
	return ""
}

// TestReplacingAllWorkersUnderLoadFailsNoCall puts eight workers under 200 calls a second and has all of them replaced three
// times over: by a rolling restart, by a new spec, and by the requests they have served.
func TestReplacingAllWorkersUnderLoadFailsNoCall(t *testing.T) {
	t.Parallel()
	const size = 8
	env := newEnv(t)
	env.startAgent("surge")
	s := echoSpec("surge", size)
	s.Rotation.MaxUnavailable = 2
	pool := env.startPool(s)
	require.Eventually(t, func() bool {
		status, err := pool.Status(t.Context())
		return err == nil && status.Ready == size
	}, waitTimeout, 10*time.Millisecond, "the pool itself has heard of all")
	// As many at once as there are workers: the gateway leases no more of them than it has calls for, and all are to have their share.
	l := startLoad(t, env.gatewayClient("surge"), "/v1/pools/surge/call/echo", 200, size)
	all := func(what string, holds func(api.Worker) bool) {
		env.waitFor(pool, what, func(v api.PoolWorkers) bool {
			if v.Rollout != nil || v.Ready != size {
				return false
			}
			for _, worker := range v.Workers {
				if !holds(worker) {
					return false
				}
			}
			return true
		})
		require.Zero(t, l.failed.Load(), "%s: of %d calls: %s", what, l.made.Load(), l.firstFailure())
	}
	// The roster is what the pool is told; with surge it must never hear of a worker out of service.
	least := make(chan int, 1)
	watching, enough := context.WithCancel(t.Context())
	go func() {
		fewest := size
		for watching.Err() == nil {
			if status, err := pool.Status(watching); err == nil {
				fewest = min(fewest, status.Ready)
			}
			select {
			case <-watching.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		least <- fewest
	}()

	_, err := pool.Restart(t.Context(), api.RestartRequest{Reason: "new moon"})
	require.NoError(t, err)
	all("all have restarted", func(worker api.Worker) bool { return worker.RotationsByReason["operator"] == 1 })

	s.Pool.Env["GREETING"] = "hello"
	s.Rotation.MaxRequests = 100 // reached within some seconds from here on
	_, err = pool.Apply(t.Context(), s)
	require.NoError(t, err)
	all("all have the new spec", func(worker api.Worker) bool {
		return worker.RotationsByReason["spec"] == 1 && worker.SpecVersion == 2
	})
	all("all have served their share", func(worker api.Worker) bool { return worker.RotationsByReason["requests"] >= 1 })
	enough()
	require.Equal(t, size, <-least, "ready and busy workers at the worst moment")
	l.stop()
	require.Zero(t, l.failed.Load(), "of %d calls: %s", l.made.Load(), l.firstFailure())

	history, err := pool.History(t.Context(), 0)
	require.NoError(t, err)
	told := ""
	for _, step := range history {
		told += step.Reason + "\n"
	}
	require.Contains(t, told, "new moon")
	require.Contains(t, told, "apply of spec version 2")
	require.Regexp(t, `Rotating the worker: it served \d+ requests \(limit \d+\)`, told)
}

// TestALeakingWorkerIsReplacedBeforeItsMemoryLimit has two workers leak some 20 MB a second each.
func TestALeakingWorkerIsReplacedBeforeItsMemoryLimit(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("leak")
	s := pythonSpec("leak", 2, "leak.py")
	s.Prediction.Window = 3
	s.Health.MemoryBands = nil // prediction alone is to see it
	pool := env.startPool(s)
	l := startLoad(t, env.gatewayClient("leak"), "/v1/pools/leak/call/leak", 40, 1)
	view := env.waitFor(pool, "both were replaced by prediction", func(v api.PoolWorkers) bool {
		for _, worker := range v.Workers {
			if worker.RotationsByReason["prediction"] == 0 {
				return false
			}
		}
		return v.Ready == 2
	})
	l.stop()
	require.Zero(t, l.failed.Load(), "of %d calls: %s", l.made.Load(), l.firstFailure())
	for _, worker := range view.Workers {
		require.Zero(t, worker.RotationsByReason["memory"], "it never reached its limit")
		require.Less(t, worker.PeakMemoryBytes, int64(s.Rotation.MaxMemory))
		require.Empty(t, worker.RestartsByReason)
	}
}

// TestAnAgentKilledDuringASurgeLeavesOneIncarnation kills the agent while a successor starts.
func TestAnAgentKilledDuringASurgeLeavesOneIncarnation(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	a := env.startAgent("halfway")
	s := pythonSpec("halfway", 1, "slowstart.py")
	pool := env.startPool(s)
	_, err := pool.Restart(t.Context(), api.RestartRequest{Reason: "new moon"})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(hostProcesses("halfway")) == 2 }, waitTimeout, 10*time.Millisecond, "the successor starts")
	a.kill()
	require.Eventually(t, func() bool { return len(hostProcesses("halfway")) == 0 }, waitTimeout, 50*time.Millisecond, "no process is left")
	env.startAgent("halfway")
	view := env.waitFor(pool, "it serves again", func(v api.PoolWorkers) bool {
		return v.Ready == 1 && v.Rollout == nil && v.Workers[0].Incarnation >= 3 && len(v.Workers[0].Leaving) == 0
	})
	require.Zero(t, view.Workers[0].Successor)
	require.Eventually(t, func() bool { return len(hostProcesses("halfway")) == 1 }, waitTimeout, 50*time.Millisecond)
}

func TestAHostsBudgetIsSharedAmongItsWorkers(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("budget")
	s := echoSpec("budget", 2)
	s.Resources.Allocation, s.Resources.MemoryBudget, s.Resources.CPUBudget = spec.AllocationEqual, 1<<30, 1
	s.Resources.Rebalance = spec.Duration(time.Second)
	pool := env.startPool(s)
	var status api.PoolStatus
	require.Eventually(t, func() bool {
		var err error
		status, err = pool.Status(t.Context())
		return err == nil && len(status.Shares) == 2 && status.Shares[0].Applied && status.Shares[1].Applied
	}, waitTimeout, 100*time.Millisecond, "%+v", &status)
	require.EqualValues(t, 1<<30, status.Shares[0].MemoryBytes+status.Shares[1].MemoryBytes)
	require.InDelta(t, 1, status.Shares[0].CPUCores+status.Shares[1].CPUCores, 1e-9)
	for slot := range 2 { // what is in force is told by each worker, too, and once
		require.Eventually(t, func() bool {
			st, err := pool.State(t.Context(), slot)
			return err == nil && st.LimitsApplied != nil && st.LimitsApplied.MemoryBytes == 512<<20 &&
				st.LimitsApplied.CPUCores == 0.5 && st.Limits["memory"] != "" && st.Limits["cpu"] != ""
		}, waitTimeout, 100*time.Millisecond, "worker %d", slot)
		history, err := pool.History(t.Context(), slot)
		require.NoError(t, err)
		require.Equal(t, lifecycle.EventKind(lifecycle.LimitsApplied), history[len(history)-1].Event)
		require.Contains(t, history[len(history)-1].Reason, "its equal share of the host's budget is 536 MB and 0.50 cores")
	}
	env.waitFor(pool, "the host tells of the limits", func(v api.PoolWorkers) bool {
		return v.Workers[0].MemoryLimitBytes == 512<<20 && v.Workers[1].CPULimitCores == 0.5 && v.Workers[1].Limits["memory"] != ""
	})
}
