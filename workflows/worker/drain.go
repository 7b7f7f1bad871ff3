package worker

import (
	"fmt"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// drainSlack is how long after the drain timeout the host's result may arrive.
const drainSlack = 250 * time.Millisecond

// drain grants no lease and waits for the calls in flight, at most rotation.drain_timeout.
func (w *worker) drain() bool {
	w.absorbRequests()
	if r := w.takeRequest(api.SignalStop); r != nil {
		w.endByOrder(lifecycle.Stop, r)
		return true
	}
	if e := w.monitor.takeExit(); e != nil {
		w.monitor.measured(nil, nil, e.Usage)
		w.processExited(e.Exit, e.Reason)
		return true
	}
	if r := w.tasks.drain.Take(); r != nil && r.Err == nil && r.Value.CallsCut > 0 {
		w.rotator.recordCutCalls(r.Value.CallsCut)
		w.transition(lifecycle.DrainTimeout,
			fmt.Sprintf("drain timed out after %s (rotation.drain_timeout); calls cut: %d", w.Spec.Rotation.DrainTimeout,
				r.Value.CallsCut))
		return true
	}
	// a process whose host could not drain it is stopped without
	timedOut, released := w.tasks.drainLimit.Ended(), w.tasks.drainLimit.Running() && !w.tasks.drain.Running()
	switch {
	case (w.Lease == nil || timedOut) && w.surge.isReady() && w.Intent != IntentRest && !w.Ending:
		w.surge.switchOver()
		return true
	case w.Lease == nil && (released || timedOut):
		w.transition(lifecycle.Drained, "no call in flight")
		return true
	case timedOut: // with a lease
		w.transition(lifecycle.DrainTimeout, fmt.Sprintf("lease %s not released by %q within %s (rotation.drain_timeout)",
			w.Lease.ID, w.Lease.Holder, w.Spec.Rotation.DrainTimeout))
		return true
	}
	if !w.tasks.drainLimit.Running() {
		// The host reports how many calls it cut. The timer is for leases that are not released, and for a host that does
		// not answer.
		if w.Process.DrainUntil.IsZero() {
			w.Process.DrainUntil = w.Now().Add(w.Spec.Rotation.DrainTimeout.D())
		}
		limit := max(0, w.Process.DrainUntil.Sub(w.Now()))
		w.tasks.drainLimit.Start(w.Loop, limit+drainSlack, "drain timeout")
		w.activities.drain(spec.Duration(limit))
	}
	return false
}
