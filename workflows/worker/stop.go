package worker

import (
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// stop ends the process, wherever it is.
func (w *worker) stop() bool {
	w.events.watch, w.events.probe, w.events.drained, w.events.drainTimeout, w.events.checkpoint = nil, nil, nil, false, false
	w.absorbRequests(true)
	if w.tasks.start != nil { // stopped while starting: the process is only known when Start has ended
		w.tasks.start.Cancel()
		return false
	}
	if a := take(&w.events.start); a != nil {
		w.replayAttempts(a)
		if a.err != nil {
			w.processExited(&lifecycle.Exit{Interrupted: true}, "the start was called off")
			return true
		}
		w.setProcess(a.result)
	}
	if a := take(&w.events.stopped); a != nil {
		if a.err != nil {
			w.processExited(&lifecycle.Exit{Error: "host lost"}, fmt.Sprintf("host %s did not answer when asked to stop the process: %s",
				w.Process.Host, failure.Message(a.err)))
		} else {
			w.setObservedUsage(a.result.Usage)
			w.processExited(&a.result.Exit, a.result.Reason)
		}
		return true
	}
	if w.Process.Host == "" { // called off before anybody took the start
		w.processExited(&lifecycle.Exit{Interrupted: true}, "it was stopped before a host had taken it")
		return true
	}
	if w.tasks.stop == nil {
		grace := w.Spec.Pool.StopGrace
		run(w, &w.tasks.stop, &w.events.stopped, api.ActivityStop,
			w.onHost(fmt.Sprintf("stop process %d: %s", w.Process.PID, w.lastReason()), grace.D()+2*slack),
			api.StopRequest{Process: w.process(), Grace: grace, Reason: w.lastReason()})
	}
	return false
}

// processExited records the end of the incarnation and of everything that belonged to it.
func (w *worker) processExited(exit *lifecycle.Exit, reason string) {
	w.endLease()
	w.addUsage(unreported(w.Process.Observed, w.Process.Reported))
	w.Process.Observed = api.Usage{}
	if w.Cause == "" {
		w.Cause = api.CauseExit
	}
	for _, slot := range []**loop.Task{&w.tasks.watch, &w.tasks.probe, &w.tasks.drain, &w.tasks.stop, &w.tasks.reset, &w.tasks.checkpoint, &w.tasks.lease, &w.tasks.drainLimit, &w.tasks.uptime} {
		loop.CancelTask(slot)
	}
	w.events = pendingEvents{drain: w.events.drain, stop: w.events.stop, restart: w.events.restart, successor: w.events.successor}
	w.transition(lifecycle.Exited, reason, exit)
}
