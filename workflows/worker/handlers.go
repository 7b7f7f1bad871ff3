package worker

import (
	"cmp"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// register sets the handlers of every update, signal and query, before anything else runs.
func (w *worker) register(ctx workflow.Context) error {
	w.registerSignals()
	if err := w.registerQueries(ctx); err != nil {
		return err
	}
	return w.registerUpdates(ctx) // last: an update that waits is let in at once
}

func (w *worker) registerUpdates(ctx workflow.Context) error {
	// Refusals come from the validators, where they cost no history.
	err := workflow.SetUpdateHandlerWithOptions(ctx, api.UpdateCheckout, w.checkout, workflow.UpdateHandlerOptions{
		Validator: func(r api.CheckoutRequest) error {
			// A checkin in the same workflow task is not handled yet: update handlers run before the loop that reads signals.
			if w.leaseOf(r.RequestID) != nil || w.recallable() || w.hasSignals() {
				return nil
			}
			if refused := w.refusal(r); refused != nil {
				return failure.Refusal(refused)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	err = workflow.SetUpdateHandlerWithOptions(ctx, api.UpdateRenew, w.renew, workflow.UpdateHandlerOptions{
		Validator: func(r api.RenewRequest) error {
			if refused := w.renewRefusal(r); refused != nil {
				return failure.Refusal(refused)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	return workflow.SetUpdateHandler(ctx, api.UpdateCheckin,
		func(_ workflow.Context, r api.CheckinRequest) (api.CheckinResult, error) {
			w.checkin(r)
			return api.CheckinResult{State: w.Machine.State}, nil
		})
}

// listen makes an inbox for every signal. What can be done at once is; the rest is parked.
func (w *worker) registerSignals() {
	onSignal(w, api.SignalCheckin, w.checkin)
	onSignal(w, api.SignalCheckout, func(r api.CheckoutRequest) {
		if w.leaseOf(r.RequestID) != nil {
			return
		}
		if refused := w.refusal(r); refused != nil {
			w.refuse("checkout: " + refused.Message)
			return
		}
		w.grant(r)
	})
	onSignal(w, api.SignalDrain, func(c api.Control) { w.events.drain = requested(c.Reason, c.By, true) })
	onSignal(w, api.SignalStop, func(c api.Control) { w.events.stop = requested(c.Reason, c.By, true) })
	onSignal(w, api.SignalSuspend, func(c api.Control) {
		w.events.suspend = requested(c.Reason, c.By, false)
		w.SuspendWanted = true
	})
	onSignal(w, api.SignalResume, func(c api.Control) { w.events.resume = requested(c.Reason, c.By, false) })
	onSignal(w, api.SignalRestart, func(r api.Restart) {
		if r.Spec != nil {
			w.NextSpec = &VersionSpec{*r.Spec, r.SpecVersion}
		}
		w.events.restart = requested(r.Reason, r.By, false)
		w.events.restart.cause, w.events.restart.inPlace = cmp.Or(r.Cause, api.CauseOperator), r.InPlace
	})
	onSignal(w, api.SignalRotationGrant, w.rotationGranted)
	onSignal(w, api.SignalStartsHeld, func(h api.StartsHeld) { w.StartsHeld, w.TrialPause = h.Reason, 0 })
	onSignal(w, api.SignalStartReleased, func(r api.StartReleased) {
		if w.Wait.Pool && w.Machine.State == lifecycle.Pending && r.Incarnation == w.Machine.Incarnation {
			w.StartReleased, w.TrialPause = true, r.Pause.D()
		}
	})
	onSignal(w, api.SignalLimitsApplied, w.limitsApplied)
	onSignal(w, api.SignalEnd, func(api.Control) { w.end() })
	onSignal(w, api.SignalPoolContinues, func(api.Control) { w.IgnoreNextCancel = true })
	onSignal(w, api.SignalForceContinue, func(api.Control) { w.force = true })
}

// onSignal has handle called with each signal of that name, in order. A payload that cannot be read is refused, not dropped.
func onSignal[T any](w *worker, name string, handle func(T)) {
	w.signals = append(w.signals, loop.NewInbox(w.ctx, name, handle, w.refuse))
}

// hasSignals reports whether a signal waits to be handled.
func (w *worker) hasSignals() bool {
	for _, box := range w.signals {
		if box.Channel.Len() > 0 {
			return true
		}
	}
	return false
}

// drainSignals handles every signal that is unread, and reports whether there were any. A new run would never see them.
func (w *worker) drainSignals() bool {
	found := false
	for _, box := range w.signals {
		for box.Receive() {
			found = true
		}
	}
	return found
}
