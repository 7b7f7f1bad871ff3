package worker

import (
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
)

// stop ends the process.
func (w *worker) stop() bool {
	w.tasks.watch.Take()
	w.tasks.probe.Take()
	w.tasks.drain.Take()
	w.tasks.drainLimit.Take()
	w.tasks.checkpoint.Take()
	if r := w.takeRequest(api.SignalStop); r != nil {
		w.restIf(r.Rest)
	}
	w.absorbRequests()
	if w.tasks.start.Running() { // stopped while starting: the host reports the process when Start has ended
		w.tasks.start.RequestCancel()
		return false
	}
	if r := w.tasks.start.Take(); r != nil {
		w.starter.replayAttempts(r)
		if r.Err != nil {
			w.processExited(&lifecycle.Exit{Interrupted: true}, "start cancelled")
			return true
		}
		w.starter.setProcess(r.Value)
	}
	if r := w.tasks.stop.Take(); r != nil {
		if r.Err != nil {
			w.processExited(&lifecycle.Exit{Error: "host lost"}, fmt.Sprintf("host %s did not stop the process: %s",
				w.Process.Host, failure.Message(r.Err)))
		} else {
			w.monitor.setObservedUsage(r.Value.Usage)
			w.processExited(&r.Value.Exit, r.Value.Reason)
		}
		return true
	}
	if w.Process.Host == "" {
		w.processExited(&lifecycle.Exit{Interrupted: true}, "stopped before a host took the start")
		return true
	}
	if !w.tasks.stop.Running() {
		w.activities.stop(w.lastReason())
	}
	return false
}

// processExited records the end of the incarnation, and ends everything that belongs to it.
func (w *worker) processExited(exit *lifecycle.Exit, reason string) {
	w.leases.emitEnd(reason)
	w.Lease = nil // fences its holder
	w.leases.addUsage(unreported(w.Process.Observed, w.Process.Reported))
	w.Process.Observed = api.Usage{}
	if exit != nil && exit.CutCall && w.Cause == "" { // a caller left: no failure of the program, and no backoff
		w.Cause = api.CauseCutCall
		w.Counters.CallsCut++
		w.setIntent(IntentReplace, reason)
	}
	if exit != nil && exit.ByAgent && w.Cause == "" { // its host's doing: no failure of the program either
		w.Cause = api.CauseHostLost
		w.setIntent(IntentReplace, reason)
	}
	if w.Cause == "" {
		w.Cause = api.CauseExit
	}
	w.tasks.endIncarnation()
	if w.suspender.isPending() {
		w.refuse("suspend: the process has ended: " + reason)
	}
	w.suspender.drop()
	w.monitor.takeExit()
	w.transitionAt(lifecycle.Event{Kind: lifecycle.Exited, Reason: reason, Exit: exit}, w.Now())
}

// endIncarnation cancels what needs the process, and drops every result.
func (t *tasks) endIncarnation() {
	t.watch.Reset()
	t.probe.Reset()
	t.drain.Reset()
	t.stop.Reset()
	t.reset.Reset()
	t.suspend.Reset()
	t.resume.Reset()
	t.checkpoint.Reset()
	t.lease.Reset()
	t.drainLimit.Reset()
	t.uptime.Reset()
	t.awaitCapacity.Take()
	t.start.Take()
	t.wait.Take()
	t.retry.Take()
}
