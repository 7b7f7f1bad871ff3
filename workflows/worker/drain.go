package worker

import (
	"fmt"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// drain takes no new lease and waits for what is in flight, at most rotation.drain_timeout.
func (w *worker) drain() bool {
	w.absorbRequests(false)
	if r := w.events.stop; r.wanted {
		w.events.stop = request{}
		w.restIfAsked(r.stayDown)
		w.transition(lifecycle.Stop, r.reason, nil)
		return true
	}
	if a := take(&w.events.watch); a != nil && a.err != nil {
		w.setHeartbeatUsage(a.err)
	} else if a != nil && a.result.Exit != nil {
		w.setObservedUsage(a.result.Usage)
		w.processExited(a.result.Exit, a.result.Reason)
		return true
	}
	limit := w.Spec.Rotation.DrainTimeout.D()
	if a := take(&w.events.drained); a != nil && a.err == nil {
		if a.result.Checkin != nil {
			w.checkin(*a.result.Checkin)
		}
		if a.result.Cut > 0 {
			w.recordCutCalls(a.result.Cut)
			w.transition(lifecycle.DrainTimeout, w.cutReason(a.result.Cut), nil)
			return true
		}
	}
	over := w.Lease == nil || w.events.drainTimeout
	switch {
	case over && w.Successor != nil && w.Successor.Ready != nil && w.Intent != IntentRest:
		w.events.drainTimeout = false
		w.switchOver()
		return true
	case w.Lease == nil:
		w.transition(lifecycle.Drained, "nothing is in flight", nil)
		return true
	case w.events.drainTimeout:
		w.events.drainTimeout = false
		w.transition(lifecycle.DrainTimeout, fmt.Sprintf("lease %s of %q was not given back within %s", w.Lease.ID, w.Lease.Holder, limit), nil)
		return true
	}
	if w.tasks.drainLimit == nil {
		// The host says how many calls it cut; the timer is for leases that are not given back, and for a host that is silent.
		w.timer(&w.tasks.drainLimit, &w.events.drainTimeout, timerOptions{limit + drainSlack, "drain timeout"})
		run(w, &w.tasks.drain, &w.events.drained, api.ActivityDrain, w.onHost("drain: wait for calls in flight", limit+slack),
			api.DrainRequest{Process: w.process(), Timeout: w.Spec.Rotation.DrainTimeout})
	}
	return false
}

// drainSlack is what the host's own answer to a drain may take after the drain timeout.
const drainSlack = 250 * time.Millisecond
