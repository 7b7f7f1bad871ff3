package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// loadGenerator calls a pool at a constant rate until it is stopped.
type loadGenerator struct {
	calls, failed atomic.Int64
	firstError    atomic.Pointer[string] // of the first failed call
	cancel        context.CancelFunc
	ended         chan struct{}
}

// maxUnderWay is how many calls of a load are under way at most: fewer than a pool's queue takes by default, and no
// more than those of four seconds, so that a machine that is slower makes fewer calls, instead of longer and longer
// waits.
func maxUnderWay(perSecond int) int { return min(800, 4*perSecond) }

// startLoad starts perSecond calls a second, atOnce of them at a time; fewer on a machine that does not bear them.
func startLoad(t *testing.T, client *http.Client, path string, perSecond, atOnce int) *loadGenerator {
	ctx, cancel := context.WithCancel(t.Context())
	l := &loadGenerator{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		ticker := time.NewTicker(time.Second * time.Duration(atOnce) / time.Duration(perSecond))
		defer ticker.Stop()
		var group errgroup.Group
		group.SetLimit(maxUnderWay(perSecond))
		defer func() { _ = group.Wait() }()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			for range atOnce {
				group.TryGo(func() error { l.call(client, path); return nil })
			}
		}
	}()
	t.Cleanup(l.stop)
	return l
}

func (l *loadGenerator) call(client *http.Client, path string) {
	l.calls.Add(1)
	response, answer, err := send(context.Background(), client, http.MethodPost, path, "1")
	what := ""
	if err != nil {
		what = err.Error()
	} else if response.StatusCode != http.StatusOK {
		what = fmt.Sprintf("%d: %s", response.StatusCode, answer)
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

// TestReplacingAllWorkersUnderLoadFailsNoCall sends 200 calls a second to eight workers and replaces all of them three
// times: by a rolling restart, by a new spec, and by rotation.max_requests.
func TestReplacingAllWorkersUnderLoadFailsNoCall(t *testing.T) {
	const size = 8
	env := oneHost(t, "surge")
	s := echoSpec("surge", size)
	s.Rotation.MaxUnavailable, s.Rotation.DrainTimeout = 2, spec.Duration(waitTimeout)
	pool := env.startPool(s)
	// As many calls at a time as workers.
	l := startLoad(t, env.gatewayClient("surge"), "/v1/pools/surge/call/echo", 200, size)
	// what holds of a worker continues to hold, so one view need not show it of all of them
	all := func(what string, holds func(api.Worker) bool) {
		seen := map[string]bool{}
		env.waitFor(pool, what, func(v api.PoolWorkers) bool {
			for _, worker := range v.Workers {
				if holds(worker) {
					seen[worker.Worker] = true
				}
			}
			return v.Rollout == nil && v.Ready == size && len(seen) == size
		})
		require.Zero(t, l.failed.Load(), "%s: of %d calls: %s", what, l.calls.Load(), l.firstFailure())
	}
	said := func(pattern string) { // at once: a history keeps the newest transitions only
		t.Helper()
		env.waitHistory(pool, 0, pattern, func(history []lifecycle.Transition) bool {
			return slices.ContainsFunc(history,
				func(step lifecycle.Transition) bool { return regexp.MustCompile(pattern).MatchString(step.Reason) })
		})
	}
	// With surge, no worker is ever out of service in the roster.
	least := make(chan int, 1)
	watching, enough := context.WithCancel(t.Context())
	go func() {
		fewest := size
		for watching.Err() == nil {
			asked := time.Now()
			if status, err := pool.Status(watching); err == nil {
				fewest = min(fewest, status.Ready)
			}
			wait(watching, pause(asked, 20*time.Millisecond))
		}
		least <- fewest
	}()

	env.restart(pool, api.RestartRequest{Reason: "on request"})
	all("all have restarted", func(worker api.Worker) bool { return worker.RotationsByReason["operator"] == 1 })
	said("on request")

	s.Pool.Env["GREETING"] = "hello"
	// reached within seconds, but not by so many workers at a time that a slow machine does nothing else
	s.Rotation.MaxRequests = 400
	_, err := pool.Apply(t.Context(), s)
	require.NoError(t, err)
	all("all have the new spec", func(worker api.Worker) bool {
		return worker.RotationsByReason["spec"] == 1 && worker.SpecVersion == 2
	})
	said("apply of spec version 2")
	all("all have reached max_requests", func(worker api.Worker) bool { return worker.RotationsByReason["requests"] >= 1 })
	enough()
	require.Equal(t, size, <-least, "the lowest number of workers in service")
	l.stop()
	require.Zero(t, l.failed.Load(), "of %d calls: %s", l.calls.Load(), l.firstFailure())
	said(`Rotating worker: served \d+ requests \(limit \d+, rotation.max_requests\)`)
}

// leakIsPredicted makes a worker leak about 5 MB a second: three samples show the
// trend minutes before the limit.
func leakIsPredicted(env *testEnv) {
	t := env.t
	s := pythonSpec("leak", 1, "leak.py") // calls one after the other may leave a second worker without any
	s.Pool.Env["LEAK"] = "5"
	s.Prediction.Window, s.Rotation.DrainTimeout = 3, spec.Duration(waitTimeout)
	s.Rotation.MaxMemory, s.Health.MemoryBands = 512<<20, spec.Bands{} // so that only prediction replaces workers
	pool := env.startPool(s)
	l := startLoad(t, env.gatewayClient("host"), "/v1/pools/leak/call/leak", 1, 1)
	view := env.waitFor(pool, "it was replaced by prediction", func(v api.PoolWorkers) bool {
		return v.Ready == 1 && v.Workers[0].RotationsByReason["prediction"] > 0
	})
	l.stop()
	require.Zero(t, l.failed.Load(), "of %d calls: %s", l.calls.Load(), l.firstFailure())
	worker := view.Workers[0]
	require.Zero(t, worker.RotationsByReason["memory"], "the worker never reached its limit")
	require.Less(t, worker.PeakMemoryBytes, int64(s.Rotation.MaxMemory))
	require.Empty(t, worker.RestartsByReason)
}

func sharedBudget(env *testEnv) {
	t := env.t
	s := echoSpec("budget", 2)
	s.Resources.Allocation, s.Resources.MemoryBudget, s.Resources.CPUBudget = spec.AllocationEqual, 1<<30, 1
	s.Resources.Rebalance = spec.Duration(time.Second)
	pool := env.startPool(s)
	status := until(env, "the shares are not applied", pool.Status, func(s api.PoolStatus) bool {
		return len(s.Shares) == 2 && s.Shares[0].Applied && s.Shares[1].Applied
	})
	require.EqualValues(t, 1<<30, status.Shares[0].MemoryBytes+status.Shares[1].MemoryBytes)
	require.InDelta(t, 1, status.Shares[0].CPUCores+status.Shares[1].CPUCores, 1e-9)
	for slot := range 2 { // each worker reports its limits, once
		env.waitWorker(pool, slot, "has no limits", func(st api.WorkerState) bool {
			return st.LimitsApplied != nil && st.LimitsApplied.MemoryBytes == 512<<20 &&
				st.LimitsApplied.CPUCores == 0.5 && st.Limits["memory"] != "" && st.Limits["cpu"] != ""
		})
		history := env.history(pool, slot)
		require.True(t, slices.ContainsFunc(history, func(step lifecycle.Transition) bool {
			return step.Event == lifecycle.EventKind(lifecycle.LimitsApplied) &&
				strings.Contains(step.Reason, "equal share of the host's budget: 536 MB, 0.50 cores")
		}), "%+v", history)
	}
	env.waitFor(pool, "the host reports the limits", func(v api.PoolWorkers) bool {
		return v.Workers[0].MemoryLimitBytes == 512<<20 && v.Workers[1].CPULimitCores == 0.5 &&
			v.Workers[1].Limits["memory"] != ""
	})
}
