package worker

import (
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
)

// With lease.on_expiry = "reset" a worker whose lease has expired is asked to forget what its holder left behind. Nobody may have it
// meanwhile, so it is degraded, and a reset that succeeds is its probe.

// startReset ends the lease and has the worker reset.
func (w *worker) startReset() {
	id := w.Lease.ID
	w.transition(lifecycle.CheckinError, fmt.Sprintf("lease %s of %q expired; the worker is asked to forget what it left behind", id, w.Lease.Holder), nil)
	w.endLease()
	timeout := w.Spec.Health.Timeout
	run(w, &w.tasks.reset, &w.events.reset, api.ActivityReset, w.onHost("reset after lease "+id+" expired", timeout.D()+slack),
		api.ResetRequest{Process: w.process(), LeaseID: id, Timeout: timeout})
}

// resetting reports whether what became of a reset is not known yet, or not acted on.
func (w *worker) resetting() bool { return w.tasks.reset != nil || w.events.reset != nil }

// resetEnded takes what became of it: ready again, or replaced.
func (w *worker) resetEnded(a *completion[api.ResetResult]) {
	problem := a.result.Problem
	switch {
	case a.err != nil && failure.NotStarted(a.err):
		w.hostLost(a.err)
		return
	case a.err != nil:
		problem = failure.Message(a.err)
	default:
		w.countUsage(a.result.Usage, w.Machine.Incarnation)
	}
	if problem == "" {
		w.LeaseErrors = 0
		w.transition(lifecycle.ProbePassed, "the worker was reset after its lease had expired", nil)
		return
	}
	reason := "a lease expired, and the worker was not reset: " + problem
	w.Cause = api.CauseLease
	w.setIntent(IntentReplace, reason)
	w.transition(lifecycle.Unhealthy, reason, nil)
}
