package worker

import (
	"cmp"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/emit"
)

// emitTransition emits the newest transition.
func (w *worker) emitTransition() {
	t := w.Machine.Ring[len(w.Machine.Ring)-1]
	emit.EventAt(w.Ctx, api.EventWorkerTransitioned, api.WorkerSource(w.name()), t.Timestamp, api.TransitionEvent{
		Transition: t, Host: w.Process.Host, PID: w.Process.PID,
	})
}

// emit emits an event of the current lease.
func (l *leases) emit(eventType, reason string) {
	emit.Event(l.Ctx, eventType, api.WorkerSource(l.name()), leaseEvent(l.Lease, reason))
}

// emitRelease emits the return of a lease.
func (l *leases) emitRelease(lease *api.Lease, r api.CheckinRequest) {
	e := leaseEvent(lease, display.Shorten(r.Error))
	e.Outcome, e.Usage = string(cmp.Or(r.Outcome, api.OutcomeOK)), &r.Usage
	emit.Event(l.Ctx, api.EventLeaseReleased, api.WorkerSource(l.name()), e)
}

// emitEnd emits the end of the current lease, if there is one, without a checkin.
func (l *leases) emitEnd(reason string) {
	if l.Lease == nil || l.surge.switching { // its calls finish on the old process
		return
	}
	e := leaseEvent(l.Lease, reason)
	e.Outcome = "ended" // not by its holder
	emit.Event(l.Ctx, api.EventLeaseReleased, api.WorkerSource(l.name()), e)
}

// emitRefusal emits the refusal of a request, and returns it; nil is none.
func (l *leases) emitRefusal(request, holder, leaseID string, refused *api.Error) *api.Error {
	if refused != nil {
		emit.Event(l.Ctx, api.EventLeaseRefused, api.WorkerSource(l.name()), api.LeaseEvent{
			LeaseID: display.Shorten(leaseID), Holder: display.Shorten(holder), Request: request, Code: refused.Code,
			Reason: display.Shorten(refused.Message),
		})
	}
	return refused
}

func leaseEvent(lease *api.Lease, reason string) api.LeaseEvent {
	return api.LeaseEvent{
		LeaseID: lease.ID, Holder: lease.Holder, Session: lease.Session, Incarnation: lease.Incarnation, Host: lease.Host,
		ExpiresAt: &lease.ExpiresAt, Reason: reason,
	}
}

func (r rotator) emit(eventType string, rotation rotation) {
	emit.Event(r.Ctx, eventType, api.WorkerSource(r.name()), api.RotationEvent{
		Incarnation: rotation.Incarnation, Cause: rotation.Cause, Reason: rotation.Reason, Observed: rotation.Observed,
		InPlace: rotation.InPlace,
		Failed:  rotation.Failed, CallsCut: rotation.CallsCut,
	})
}

// emitStarted emits that the rotation is carried out, once for all of its attempts.
func (r rotator) emitStarted() {
	if !r.Rotation.started {
		r.Rotation.started = true
		r.emit(api.EventRotationStarted, *r.Rotation)
	}
}
