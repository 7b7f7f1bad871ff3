package worker

import (
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// A worker continues as new when nothing is under way that the next run would have to start again. A run that is
// overdue does not wait for that: carry turns whatever is under way into state, and takeOver takes it up again. A start
// under way is given up, and its incarnation number is not used again; everything else continues where it was.

// CarriedState is what was under way when the previous run ended.
type CarriedState struct {
	// Requests are to be carried out, at most one of each kind.
	Requests []PendingRequest `json:"requests,omitempty"`
	Unsent   []loop.Message   `json:"unsent,omitempty"` // signals to the pool
	// ResetLease is the expired lease after which the process is being reset.
	ResetLease string `json:"reset_lease,omitempty"`
}

// mayContinue reports whether the run continues as new now.
func (w *worker) mayContinue() bool {
	return w.MustContinue() || w.ContinueDue(w.ContinueEvery) && w.isIdle() && !w.tasks.hasResults()
}

// isIdle reports whether the next run has nothing to start again.
func (w *worker) isIdle() bool {
	if w.Successor != nil || len(w.Draining) > 0 || w.surge.claiming {
		return false
	}
	switch w.Machine.State {
	case lifecycle.Ready, lifecycle.Busy, lifecycle.Degraded, lifecycle.Suspended:
		return !w.tasks.probe.Running() && !w.leases.isResetting() && !w.tasks.suspend.Running() && !w.tasks.resume.Running()
	case lifecycle.Pending:
		return true
	}
	return w.Resting
}

// carry is the state for the next run.
func (w *worker) carry() *Run {
	if w.tasks.start.Running() {
		w.giveUpStart()
	}
	if w.tasks.probe.Running() {
		w.NextCheckpoint = w.Now()
	}
	if !w.tasks.reset.Running() {
		w.ResetLease = ""
	}
	w.surge.carry()
	w.Unsent = w.Undelivered()
	return w.Run
}

// giveUpStart ends a start whose result no run will get. The host notices by the start's heartbeats, and ends the
// process.
func (w *worker) giveUpStart() {
	if w.Machine.State == lifecycle.Starting {
		const reason = "start abandoned: the workflow had to continue as new, and the start took too long"
		w.endIncarnation("", IntentReplace, reason)
		w.transition(lifecycle.StartFailed, reason)
	}
}

// takeOver resumes what was in progress when the previous run ended.
func (w *worker) takeOver() {
	w.Resend(w.Unsent)
	w.Unsent = nil
	if w.ResetLease != "" {
		w.activities.reset(w.ResetLease)
	}
	w.surge.resume()
}
