package worker

import (
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// With lease.on_expiry = "reset" the program of a worker whose lease has expired is asked to drop the holder's state.
// The worker is degraded meanwhile, so nobody can lease it, and a successful reset counts as a passed probe.

// startReset ends the lease and resets the process.
func (l *leases) startReset() {
	id := l.Lease.ID
	l.transition(lifecycle.CheckinError, fmt.Sprintf("lease %s of %q expired; resetting the process", id, l.Lease.Holder))
	l.emit(api.EventLeaseExpired, "lease.on_expiry is reset: the process is asked to drop its state")
	l.Lease, l.ResetLease = nil, id
	l.activities.reset(id)
}

// isResetting reports whether a reset is under way, or its result waits for reconcile.
func (l *leases) isResetting() bool { return l.tasks.reset.Running() || l.tasks.reset.Ended() }

// resetEnded makes the worker ready again, or replaces the process.
func (l *leases) resetEnded(r *loop.Result[api.ResetResult]) {
	l.ResetLease = ""
	problem := r.Value.Problem
	switch {
	case l.monitor.agentLost(r.Err):
		return
	case r.Err != nil:
		problem = failure.Message(r.Err)
	default:
		l.countUsage(r.Value.Usage, l.Machine.Incarnation)
	}
	if problem == "" {
		l.ProbeFailures, l.LeaseErrors, l.DegradeReason = 0, 0, ""
		l.transition(lifecycle.ProbePassed, "process reset after its lease expired")
		return
	}
	reason := "lease expired and the reset failed: " + problem
	l.endIncarnation(api.CauseLease, IntentReplace, reason)
	l.transition(lifecycle.Unhealthy, reason)
}
