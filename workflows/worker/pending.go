package worker

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// awaitStart waits out a hold: a backoff, or the lack of a host with room.
func (w *worker) awaitStart() bool {
	if r, rest := w.takeEnding(); r.wanted {
		loop.CancelTask(&w.tasks.wait)
		loop.CancelTask(&w.tasks.capacity)
		w.events.waitOver, w.events.capacity = false, nil
		w.restIfAsked(rest)
		w.transition(lifecycle.Stop, r.reason, nil)
		return true
	}
	if w.events.restart.wanted {
		reason := w.events.restart.reason
		w.Cause, w.StartReleased = w.events.restart.cause, true // who restarts a worker means now
		w.events.restart = request{}
		loop.CancelTask(&w.tasks.wait)
		loop.CancelTask(&w.tasks.capacity)
		w.events.waitOver, w.events.capacity = false, nil
		w.Failures = 0
		w.beginIncarnation(reason)
		return true
	}
	if w.Wait.Pool {
		return w.pollPermit()
	}
	if w.Wait.Capacity {
		return w.awaitCapacity()
	}
	if w.events.waitOver || !w.now().Before(w.Wait.Until) {
		w.events.waitOver = false
		loop.CancelTask(&w.tasks.wait)
		w.beginIncarnation(backoffOver)
		return true
	}
	if w.tasks.wait == nil {
		w.timer(&w.tasks.wait, &w.events.waitOver, timerOptions{w.Wait.Until.Sub(w.now()), w.Wait.Reason})
	}
	return false
}

// needsPermit reports whether the pool has to let a start go.
func (w *worker) needsPermit() bool {
	return !w.Standalone && w.TrialPause == 0 && (w.StartsHeld != "" || w.Spec.Start.RatePerSecond > 0)
}

// awaitPermit has the worker wait for its pool's leave to start.
func (w *worker) awaitPermit(reason string) {
	why := w.StartsHeld
	if why == "" {
		why = fmt.Sprintf("the pool starts at most %g processes a second (start.rate_per_second)", w.Spec.Start.RatePerSecond)
	}
	w.Wait = Wait{Pool: true, For: reason, Reason: why}
	workflow.GetLogger(w.ctx).Info("a start is held", "worker", w.name(), "for", reason, "reason", why)
	if w.Machine.State != lifecycle.Pending {
		w.skipUsedNumbers()
		w.transition(lifecycle.Hold, why, nil)
	}
}

// permitTimeout is how long a worker waits for its pool's answer before it asks again.
const permitTimeout = time.Hour

func (w *worker) pollPermit() bool {
	if w.StartReleased || !w.needsPermit() {
		w.StartReleased = true
		loop.CancelTask(&w.tasks.wait)
		w.events.waitOver = false
		w.beginIncarnation(w.Wait.For)
		return true
	}
	if w.events.waitOver {
		w.events.waitOver, w.Wait.Asked = false, false
	}
	if !w.Wait.Asked {
		w.Wait.Asked = true
		w.signalPool(api.SignalStartRequested, api.StartRequested{Slot: w.Slot, Incarnation: w.Machine.Incarnation})
	}
	if w.tasks.wait == nil {
		w.timer(&w.tasks.wait, &w.events.waitOver, timerOptions{permitTimeout, "before the pool is asked again"})
	}
	return false
}

func (w *worker) awaitCapacity() bool {
	if a := take(&w.events.capacity); a != nil && a.err == nil {
		w.beginIncarnation("host " + a.result.Host + " has room")
		return true
	}
	if w.tasks.capacity == nil {
		queue := api.PlacementQueue(w.Spec.Pool.Placement)
		run(w, &w.tasks.capacity, &w.events.capacity, api.ActivityAwaitCapacity, activityOptions{
			queue: queue, summary: "waiting for a host with room on " + queue, toStart: capacityTimeout, toClose: slack,
		}, w.process())
	}
	return false
}
