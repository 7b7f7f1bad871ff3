package worker

import (
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
)

// serve runs a worker with a live process: ready, busy, degraded or suspended. Requests come first, then results of activities, then
// timers.
func (w *worker) serve() bool {
	return w.handleRequests() || w.handleResults() || w.handleTimers() || w.rotator.rotate() || w.monitor.ensureWatch()
}

func (w *worker) handleResults() bool {
	if e := w.monitor.takeEvent(); e != nil {
		w.monitor.handle(*e)
		return true
	}
	if r := w.tasks.watch.Take(); r != nil {
		w.monitor.watchEnded(r)
		return true
	}
	if r := w.tasks.reset.Take(); r != nil {
		w.leases.resetEnded(r)
		return true
	}
	if r := w.tasks.probe.Take(); r != nil {
		w.NextCheckpoint = w.Now().Add(w.Spec.Health.Checkpoint.D())
		switch {
		case r.Err != nil && failure.NotStarted(r.Err):
			w.monitor.hostLost(w.monitor.noAgent(), failure.Message(r.Err))
		case r.Err != nil:
			w.monitor.probeFailed("health check could not run: " + failure.Message(r.Err))
		default:
			w.monitor.probeEnded(r.Value)
		}
		return true
	}
	return false
}

func (w *worker) handleTimers() bool {
	if w.tasks.lease.Take() && w.leases.expire() {
		return true
	}
	w.leases.ensureTimer()
	w.tasks.uptime.Take()
	w.rotator.ensureUptimeTimer()
	suspended := w.Machine.State == lifecycle.Suspended
	if w.tasks.checkpoint.Take() && !w.tasks.probe.Running() && !suspended {
		w.activities.probe()
	}
	if !w.tasks.checkpoint.Running() && !w.tasks.probe.Running() && !suspended && !w.leases.timerFiresBefore(w.NextCheckpoint) {
		w.tasks.checkpoint.Start(w.Loop, max(0, w.NextCheckpoint.Sub(w.Now())), "next health checkpoint")
	}
	return false
}
