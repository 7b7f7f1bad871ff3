package worker

import (
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// serve is the chapter in which a process lives: idle, leased, degraded or suspended. Requests of people come first, then
// what the host saw, then the clocks.
func (w *worker) serve() bool {
	return w.handleRequests() || w.handleResults() || w.handleTimers() || w.rotate() || w.ensureWatch()
}

func (w *worker) handleRequests() bool {
	if r := w.events.stop; r.wanted {
		w.events.stop = request{}
		w.cancelRotation()
		w.restIfAsked(r.stayDown)
		w.warn("a worker is stopped", r.reason)
		w.transition(lifecycle.Stop, r.reason, nil)
		return true
	}
	if r := w.events.drain; r.wanted {
		w.events.drain = request{}
		w.cancelRotation()
		w.restIfAsked(r.stayDown)
		w.warn("a worker is drained", r.reason)
		w.transition(lifecycle.Drain, r.reason, nil)
		return true
	}
	if r := w.takeRestart(); r.wanted {
		w.beginRestart(r)
		return true
	}
	if r := w.events.suspend; r.wanted && w.Machine.State != lifecycle.Busy && !w.resetting() {
		w.events.suspend, w.SuspendWanted = request{}, false
		if w.Machine.State == lifecycle.Suspended {
			w.refuse("suspend: it is suspended already")
			return true
		}
		w.yieldDisruption()
		w.warn("a worker is suspended", r.reason)
		w.transition(lifecycle.Suspend, r.reason, nil)
		loop.CancelTask(&w.tasks.checkpoint)
		return true
	}
	if r := w.events.resume; r.wanted {
		w.events.resume = request{}
		if w.Machine.State != lifecycle.Suspended {
			w.events.suspend, w.SuspendWanted = request{}, false
			w.refuse("resume: it is not suspended")
			return true
		}
		w.transition(lifecycle.Resume, r.reason, nil)
		w.NextCheckpoint = w.now() // a probe first: nobody looked while it was suspended
		return true
	}
	return false
}

// tell logs what was decided about this incarnation, and why.
func (w *worker) warn(what, reason string) {
	workflow.GetLogger(w.ctx).Warn(what, "worker", w.name(), "incarnation", w.Machine.Incarnation, "reason", reason)
}

func (w *worker) handleResults() bool {
	if a := take(&w.events.watch); a != nil {
		w.watchEnded(a)
		return true
	}
	if a := take(&w.events.reset); a != nil {
		w.resetEnded(a)
		return true
	}
	if a := take(&w.events.probe); a != nil {
		w.NextCheckpoint = w.now().Add(w.Spec.Health.Checkpoint.D())
		switch {
		case a.err != nil && failure.NotStarted(a.err):
			w.hostLost(a.err)
		case a.err != nil:
			w.probeFailed("the health check itself failed: " + failure.Message(a.err))
		default:
			w.setSample(a.result.Sample)
			w.setAssessment(a.result.Assessment)
			if a.result.Gone {
				w.setObservedUsage(a.result.Usage)
				w.processExited(&lifecycle.Exit{Error: a.result.Reason}, a.result.Reason)
			} else if a.result.Healthy {
				w.probePassed()
			} else {
				w.probeFailed(a.result.Reason)
			}
		}
		return true
	}
	return false
}

func (w *worker) handleTimers() bool {
	if w.events.leaseTimer {
		w.events.leaseTimer = false
		if w.expireLease() {
			return true
		}
	}
	w.ensureLeaseTimer()
	w.events.uptime = false
	w.ensureUptimeTimer()
	if w.events.checkpoint {
		w.events.checkpoint = false
		if w.tasks.probe == nil && w.Machine.State != lifecycle.Suspended {
			run(w, &w.tasks.probe, &w.events.probe, api.ActivityProbe,
				w.onHost("health checkpoint", w.Spec.Health.Timeout.D()+slack), api.WatchRequest{Process: w.process(), Health: w.Spec.Health})
		}
	}
	if w.tasks.checkpoint == nil && w.tasks.probe == nil && w.Machine.State != lifecycle.Suspended {
		w.timer(&w.tasks.checkpoint, &w.events.checkpoint, timerOptions{
			max(0, w.NextCheckpoint.Sub(w.now())), "next health checkpoint",
		})
	}
	return false
}
