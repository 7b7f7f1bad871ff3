package worker

import (
	"cmp"
	"strconv"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// register sets the handlers of all signals, queries and updates, before anything else runs.
func (w *worker) register(ctx workflow.Context) error {
	w.registerSignals()
	for _, query := range []struct {
		name    string
		handler any
	}{
		{api.QueryState, w.reporter.state}, {api.QueryMetrics, w.reporter.metrics}, {api.QueryHistory, w.reporter.history},
		{api.QuerySpec, w.reporter.spec},
	} {
		if err := workflow.SetQueryHandler(ctx, query.name, query.handler); err != nil {
			return err
		}
	}
	return w.registerUpdates(ctx) // last: a waiting update is delivered at once
}

// registerUpdates sets the handlers of updates. Their validators refuse, where a refusal costs no history event.
func (w *worker) registerUpdates(ctx workflow.Context) error {
	return loop.SetUpdates(ctx,
		loop.Update{Name: api.UpdateCheckout, Handler: w.leases.checkout,
			Options: failure.Validator(func(r api.CheckoutRequest) *api.Error {
				return w.leases.emitRefusal(api.UpdateCheckout, r.Holder, "", w.leases.validateCheckout(r))
			})},
		loop.Update{Name: api.UpdateRenew, Handler: w.leases.renew,
			Options: failure.Validator(func(r api.RenewRequest) *api.Error {
				return w.leases.emitRefusal(api.UpdateRenew, "", r.LeaseID, w.leases.renewRefusal(r))
			})},
		loop.Update{Name: api.UpdateCheckin,
			Handler: func(_ workflow.Context, r api.CheckinRequest) (api.CheckinResult, error) {
				w.leases.checkin(r)
				return api.CheckinResult{State: w.Machine.State}, nil
			},
			Options: failure.Validator(func(r api.CheckinRequest) *api.Error {
				return w.leases.emitRefusal(api.UpdateCheckin, "", r.LeaseID, w.leases.checkinForbidden(r))
			})})
}

func (w *worker) registerSignals() {
	onSignal(w, api.SignalCheckin, w.leases.checkin)
	onSignal(w, api.SignalCheckout, w.leases.checkoutSignal)
	onSignal(w, api.SignalWithdrawCheckout, w.leases.withdraw)
	loop.OnOrder(w.Loop, api.SignalOrder, w.order, w.refuse)
	for _, kind := range []string{api.SignalDrain, api.SignalStop, api.SignalSuspend, api.SignalResume,
		api.SignalRestart} {
		loop.OnOrder(w.Loop, kind, func(o api.Order) {
			o.Kind = kind
			w.order(o)
		}, w.refuse)
	}
	onSignal(w, api.SignalRotationGrant, w.rotator.granted)
	onSignal(w, api.SignalStartsPaused, w.starter.startsPaused)
	onSignal(w, api.SignalStartPermitted, w.starter.startPermitted)
	onSignal(w, api.SignalLimitsApplied, w.monitor.limitsApplied)
	onSignal(w, api.SignalProcessEvents, w.monitor.observed)
	onSignal(w, api.SignalEpochEnded, w.monitor.epochEnded)
	onSignal(w, api.SignalEnd, func(c api.Control) {
		w.leases.takeBack(c.LeaseID)
		w.end(display.Attributed(c.Reason, c.By))
	})
	onSignal(w, api.SignalForceContinue, func(api.Control) { w.ForceContinue() })
}

// order takes what an operator or the pool orders. A later order counts more than one that reconcile has not carried
// out yet.
func (w *worker) order(o api.Order) {
	request := PendingRequest{Kind: o.Kind, Reason: display.Attributed(o.Reason, o.By)}
	switch o.Kind {
	case api.SignalDrain, api.SignalStop:
		w.addRequest(request)
		if o.Cause != api.CausePressure {
			w.RestOrderedAt = w.Now()
		}
	case api.SignalSuspend:
		w.suspender.request(request.Reason)
	case api.SignalResume:
		w.addRequest(request)
	case api.SignalRestart:
		w.orderRestart(o)
	default:
		w.refuse("order: kind is " + strconv.Quote(display.Shorten(o.Kind)) +
			"; it must be drain, stop, suspend, resume or restart")
	}
}

// orderRestart handles a restart. A pool sends it again if it continued as new before it knew that the restart had
// arrived.
func (w *worker) orderRestart(r api.Order) {
	if r.ID != "" && r.ID == w.LastRestart {
		return
	}
	w.LastRestart, w.RestOrderedAt = cmp.Or(r.ID, w.LastRestart), time.Time{}
	if r.Spec != nil && !w.isOvertaken(r) {
		w.NextSpec = &api.WorkerSpec{Spec: *r.Spec, Version: r.SpecVersion}
	}
	w.addRequest(PendingRequest{
		Kind: api.SignalRestart, Reason: display.Attributed(r.Reason, r.By), Cause: cmp.Or(r.Cause, api.CauseOperator),
		InPlace: r.InPlace,
	})
}

// onSignal calls handle with each signal of that name. The worker refuses a payload that cannot be decoded.
func onSignal[T any](w *worker, name string, handle func(T)) {
	loop.OnSignal(w.Loop, name, handle, w.refuse)
}

// isOvertaken reports whether a later restart, with a newer spec, has come before this one.
func (w *worker) isOvertaken(r api.Order) bool {
	newest := w.SpecVersion
	if w.NextSpec != nil {
		newest = max(newest, w.NextSpec.Version)
	}
	return r.SpecVersion < newest
}

// absorbRequests takes requests that arrive while the process is already draining or stopping: they only change what
// follows.
func (w *worker) absorbRequests() {
	if r := w.takeRequest(api.SignalDrain); r != nil {
		w.restAfterEnd(r)
	}
	if r := w.takeRequest(api.SignalRestart); r != nil {
		w.Intent = IntentRecover // the latest order counts, also over an earlier one to rest
		w.surge.cancelSuccessor("superseded by a restart")
		w.endIncarnation(r.Cause, IntentReplace, r.Reason)
		w.starter.passBreaker()
	}
	if w.SuspendWanted || w.isRequested(api.SignalResume) {
		w.suspender.drop()
		w.refuse("suspend or resume: the worker is " + string(w.Machine.State))
	}
}

// handleRequests carries out what was requested of a worker with a live process.
func (w *worker) handleRequests() bool {
	event := lifecycle.Stop
	r := w.takeRequest(api.SignalStop)
	if r == nil {
		event, r = lifecycle.Drain, w.takeRequest(api.SignalDrain)
	}
	if r != nil {
		w.rotator.cancelRotation()
		w.warn("taking worker out of service: "+string(event), r.Reason)
		w.endByOrder(event, r)
		return true
	}
	if r := w.takeRequest(api.SignalRestart); r != nil {
		w.rotator.beginRestart(*r)
		return true
	}
	return w.suspender.reconcile()
}
