package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// pend waits out a hold: a backoff, or the lack of a host with room.
func (w *worker) pend() bool {
	if r, rest := w.takeEnding(); r.wanted {
		stopTask(&w.work.hold)
		stopTask(&w.work.room)
		w.facts.holdOver, w.facts.room = false, nil
		w.rest(rest)
		w.next(lifecycle.Stop, r.reason, nil)
		return true
	}
	if w.facts.restart.wanted {
		reason := w.facts.restart.reason
		w.Cause, w.Released = w.facts.restart.cause, true // who restarts a worker means now
		w.facts.restart = request{}
		stopTask(&w.work.hold)
		stopTask(&w.work.room)
		w.facts.holdOver, w.facts.room = false, nil
		w.Failures = 0
		w.place(reason)
		return true
	}
	if w.Hold.Pool {
		return w.pendForLeave()
	}
	if w.Hold.Room {
		return w.pendForRoom()
	}
	if w.facts.holdOver || !w.now().Before(w.Hold.Until) {
		w.facts.holdOver = false
		stopTask(&w.work.hold)
		w.place(waitOver)
		return true
	}
	if w.work.hold == nil {
		w.timer(&w.work.hold, &w.facts.holdOver, timerOptions{w.Hold.Until.Sub(w.now()), w.Hold.Reason})
	}
	return false
}

// mustAsk reports whether the pool has to let a start go.
func (w *worker) mustAsk() bool {
	return !w.Orphan && w.TrialPause == 0 && (w.Held != "" || w.Spec.Start.RatePerSecond > 0)
}

// awaitLeave has the worker wait for its pool's leave to start.
func (w *worker) awaitLeave(reason string) {
	why := w.Held
	if why == "" {
		why = fmt.Sprintf("the pool starts at most %g processes a second (start.rate_per_second)", w.Spec.Start.RatePerSecond)
	}
	w.Hold = Hold{Pool: true, For: reason, Reason: why}
	workflow.GetLogger(w.ctx).Info("a start is held", "worker", w.name(), "for", reason, "reason", why)
	if w.Machine.State != lifecycle.Pending {
		w.countOn()
		w.next(lifecycle.Hold, why, nil)
	}
}

// leavePatience is how long a worker waits for its pool's answer before it asks again.
const leavePatience = time.Hour

func (w *worker) pendForLeave() bool {
	if w.Released || !w.mustAsk() {
		w.Released = true
		stopTask(&w.work.hold)
		w.facts.holdOver = false
		w.place(w.Hold.For)
		return true
	}
	if w.facts.holdOver {
		w.facts.holdOver, w.Hold.Asked = false, false
	}
	if !w.Hold.Asked {
		w.Hold.Asked = true
		w.post(api.SignalStartRequested, api.StartRequested{Slot: w.Slot, Incarnation: w.Machine.Incarnation})
	}
	if w.work.hold == nil {
		w.timer(&w.work.hold, &w.facts.holdOver, timerOptions{leavePatience, "before the pool is asked again"})
	}
	return false
}

func (w *worker) pendForRoom() bool {
	if a := taken(&w.facts.room); a != nil && a.err == nil {
		w.place("host " + a.result.Host + " has room")
		return true
	}
	if w.work.room == nil {
		queue := api.PlacementQueue(w.Spec.Pool.Placement)
		run(w, &w.work.room, &w.facts.room, api.ActivityAwaitCapacity, activityOptions{
			queue: queue, summary: "waiting for a host with room on " + queue, toStart: roomPatience, toClose: slack,
		}, w.process())
	}
	return false
}
