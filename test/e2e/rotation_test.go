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

// load makes calls of a pool at a steady rate until it is stopped.
type load struct {
	made, failed atomic.Int64
	first        atomic.Pointer[string] // the first failure
	cancel       context.CancelFunc
	ended        chan struct{}
}

// under puts a pool under so many calls a second, so many of them at once.
func under(t *testing.T, client *http.Client, path string, perSecond, atOnce int) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, ended: make(chan struct{})}
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

func (l *load) call(client *http.Client, path string) {
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
		l.first.CompareAndSwap(nil, &what)
	}
}

func (l *load) stop() {
	l.cancel()
	<-l.ended
}

func (l *load) failure() string {
	if what := l.first.Load(); what != nil {
		return *what
	}
	return ""
}

// TestUnderLoadNobodyIsMissedWhileWorkersArePlannedAway puts eight workers under 200 calls a second and has all of them replaced three
// times over: by a rolling restart, by a new spec, and by the requests they have served.
func TestUnderLoadNobodyIsMissedWhileWorkersArePlannedAway(t *testing.T) {
	t.Parallel()
	const size = 8
	w := newWorld(t)
	w.agent("surge")
	s := echo("surge", size)
	s.Rotation.MaxUnavailable = 2
	pool := w.start(s)
	require.Eventually(t, func() bool {
		status, err := pool.Status(t.Context())
		return err == nil && status.Ready == size
	}, patience, 10*time.Millisecond, "the pool itself has heard of all")
	// As many at once as there are workers: the gateway leases no more of them than it has calls for, and all are to have their share.
	l := under(t, w.over("surge"), "/v1/pools/surge/call/echo", 200, size)
	all := func(what string, holds func(api.Worker) bool) {
		w.until(pool, what, func(v api.PoolWorkers) bool {
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
		require.Zero(t, l.failed.Load(), "%s: of %d calls: %s", what, l.made.Load(), l.failure())
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
	require.Zero(t, l.failed.Load(), "of %d calls: %s", l.made.Load(), l.failure())

	history, err := pool.History(t.Context(), 0)
	require.NoError(t, err)
	told := ""
	for _, step := range history {
		told += step.Reason + "\n"
	}
	require.Contains(t, told, "new moon")
	require.Contains(t, told, "apply of spec version 2")
	require.Regexp(t, `Rotating worker: served \d+ requests \(limit \d+, rotation.max_requests\)`, told)
}

// TestAWorkerThatLeaksIsReplacedBeforeItsLimit has two workers leak some 20 MB a second each.
func TestAWorkerThatLeaksIsReplacedBeforeItsLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("leak")
	s := python("leak", 2, "leak.py")
	s.Prediction.Window = 3
	s.Health.MemoryBands = nil // prediction alone is to see it
	pool := w.start(s)
	l := under(t, w.over("leak"), "/v1/pools/leak/call/leak", 40, 1)
	view := w.until(pool, "both were replaced by prediction", func(v api.PoolWorkers) bool {
		for _, worker := range v.Workers {
			if worker.RotationsByReason["prediction"] == 0 {
				return false
			}
		}
		return v.Ready == 2
	})
	l.stop()
	require.Zero(t, l.failed.Load(), "of %d calls: %s", l.made.Load(), l.failure())
	for _, worker := range view.Workers {
		require.Zero(t, worker.RotationsByReason["memory"], "it never reached its limit")
		require.Less(t, worker.PeakMemoryBytes, int64(s.Rotation.MaxMemory))
		require.Empty(t, worker.RestartsByReason)
	}
}

// TestAnAgentKilledInTheMiddleOfASurgeLeavesOneIncarnation kills the agent while a successor starts.
func TestAnAgentKilledInTheMiddleOfASurgeLeavesOneIncarnation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("halfway")
	s := python("halfway", 1, "slowstart.py")
	pool := w.start(s)
	_, err := pool.Restart(t.Context(), api.RestartRequest{Reason: "new moon"})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(bearers("halfway")) == 2 }, patience, 10*time.Millisecond, "the successor starts")
	a.kill()
	require.Eventually(t, func() bool { return len(bearers("halfway")) == 0 }, patience, 50*time.Millisecond, "no process is left")
	w.agent("halfway")
	view := w.until(pool, "it serves again", func(v api.PoolWorkers) bool {
		return v.Ready == 1 && v.Rollout == nil && v.Workers[0].Incarnation >= 3 && len(v.Workers[0].Leaving) == 0
	})
	require.Zero(t, view.Workers[0].Successor)
	require.Eventually(t, func() bool { return len(bearers("halfway")) == 1 }, patience, 50*time.Millisecond)
}

func TestAHostsBudgetIsSharedOutAmongItsWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("budget")
	s := echo("budget", 2)
	s.Resources.Allocation, s.Resources.MemoryBudget, s.Resources.CPUBudget = spec.AllocationEqual, 1<<30, 1
	s.Resources.Rebalance = spec.Duration(time.Second)
	pool := w.start(s)
	var status api.PoolStatus
	require.Eventually(t, func() bool {
		var err error
		status, err = pool.Status(t.Context())
		return err == nil && len(status.Shares) == 2 && status.Shares[0].Applied && status.Shares[1].Applied
	}, patience, 100*time.Millisecond, "%+v", &status)
	require.EqualValues(t, 1<<30, status.Shares[0].MemoryBytes+status.Shares[1].MemoryBytes)
	require.InDelta(t, 1, status.Shares[0].CPUCores+status.Shares[1].CPUCores, 1e-9)
	for slot := range 2 { // what is in force is told by each worker, too, and once
		require.Eventually(t, func() bool {
			st, err := pool.State(t.Context(), slot)
			return err == nil && st.LimitsApplied != nil && st.LimitsApplied.MemoryBytes == 512<<20 &&
				st.LimitsApplied.CPUCores == 0.5 && st.Limits["memory"] != "" && st.Limits["cpu"] != ""
		}, patience, 100*time.Millisecond, "worker %d", slot)
		history, err := pool.History(t.Context(), slot)
		require.NoError(t, err)
		require.Equal(t, lifecycle.EventKind(lifecycle.LimitsApplied), history[len(history)-1].Event)
		require.Contains(t, history[len(history)-1].Reason, "equal share of the host's budget: 536 MB, 0.50 cores")
	}
	w.until(pool, "the host tells of the limits", func(v api.PoolWorkers) bool {
		return v.Workers[0].MemoryLimitBytes == 512<<20 && v.Workers[1].CPULimitCores == 0.5 && v.Workers[1].Limits["memory"] != ""
	})
}
