package worker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
)

// Intent is what follows the end of a process. The zero value leaves it to the recovery policy.
type Intent string

// The intents.
const (
	IntentRecover Intent = ""        // nobody requested the end: count a failure and back off
	IntentReplace Intent = "replace" // start the next incarnation immediately
	IntentRest    Intent = "rest"    // wait for an operator's restart
)

// intents are all of them, weakest first.
var intents = []Intent{IntentRecover, IntentReplace, IntentRest}

// endIncarnation sets why the incarnation ends, for the metrics, and what follows. Every end passes here, before the
// event that moves the machine. An intent only rises. The latest cause counts; "" adds none.
func (w *worker) endIncarnation(cause api.Cause, intent Intent, reason string) {
	w.Cause = cmp.Or(cause, w.Cause)
	if slices.Index(intents, intent) > slices.Index(intents, w.Intent) {
		w.Intent, w.IntentReason = intent, reason
		if intent == IntentRest && !w.Resting { // no start follows for which to wait
			w.Wait = Wait{}
		}
	}
}

// endByOrder is endIncarnation by a stop or a drain, after which the worker rests, unless its workflow completes.
func (w *worker) endByOrder(event lifecycle.EventKind, r *PendingRequest) {
	w.rest(r)
	w.transition(event, r.Reason)
}

// rest has the worker rest once its process has ended.
func (w *worker) rest(r *PendingRequest) {
	if !w.Ending {
		w.endIncarnation("", IntentRest, r.Reason)
	}
}

// restAfterEnd is rest by an order that does not change the state, so the pool learns of it here: it must not undo that
// of an operator.
func (w *worker) restAfterEnd(r *PendingRequest) {
	w.rest(r)
	if !w.RestOrderedAt.IsZero() {
		w.reporter.reportState()
	}
}

// stopIfOrdered stops a worker on which no call is in flight, if that was ordered, and reports whether it was.
func (w *worker) stopIfOrdered() bool {
	r := w.takeEnd()
	if r != nil {
		w.endByOrder(lifecycle.Stop, r)
	}
	return r != nil
}

// stop ends the process.
func (w *worker) stop() bool {
	if r := w.takeRequest(api.SignalStop); r != nil {
		w.restAfterEnd(r)
	}
	w.absorbRequests()
	if w.tasks.start.Running() { // stopped while starting: the host reports the process when Start has ended
		w.tasks.start.RequestCancel()
		return false
	}
	if r := w.tasks.start.Take(); r != nil {
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
			w.monitor.measured(nil, nil, r.Value.Usage)
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
	if w.Failures = w.failures(); w.Failures == 0 {
		w.ShortLived = false
	}
	switch {
	case w.Cause != "":
	case exit.CutCall: // a caller left: no failure of the program, and no backoff
		w.Counters.CallsCut++
		w.endIncarnation(api.CauseCutCall, IntentReplace, reason)
	case exit.ByAgent: // its host's doing: no failure of the program either
		w.endIncarnation(api.CauseHostLost, IntentReplace, reason)
	default:
		w.endIncarnation(api.CauseExit, IntentRecover, reason)
	}
	for _, one := range w.tasks.ofProcess() {
		one.Reset()
	}
	if w.SuspendWanted {
		w.refuse("suspend: the process has ended: " + reason)
	}
	w.suspender.drop()
	w.monitor.takeExit()
	if w.Intent == IntentRest && !w.Ending { // every view shows who stopped it and why, as long as it rests
		reason = w.IntentReason + ": " + reason
	}
	w.apply(lifecycle.Event{Kind: lifecycle.Exited, Reason: reason, Exit: exit})
}
