package workflows

import (
	"cmp"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// refusalError turns a coded refusal into the failure that Temporal carries: its type is the code, its detail the hint.
func refusalError(e *api.Error) error {
	return temporal.NewApplicationErrorWithOptions(e.Message, string(e.Code), temporal.ApplicationErrorOptions{
		NonRetryable: !e.Code.Retryable(),
		Details:      []any{api.RefusalDetails{RetryAfterMS: e.RetryAfter.Milliseconds()}},
	})
}

// register sets the handlers of every update, signal and query, before anything else runs.
func (w *worker) register(ctx workflow.Context) error {
	w.listen()
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
			if w.grantOf(r.RequestID) != nil || w.recallable() || w.signalled() {
				return nil
			}
			if refused := w.refusal(r); refused != nil {
				return refusalError(refused)
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
				return refusalError(refused)
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
func (w *worker) listen() {
	onSignal(w, api.SignalCheckin, w.checkin)
	onSignal(w, api.SignalCheckout, func(r api.CheckoutRequest) {
		if w.grantOf(r.RequestID) != nil {
			return
		}
		if refused := w.refusal(r); refused != nil {
			w.refuse("checkout: " + refused.Message)
			return
		}
		w.grant(r)
	})
	onSignal(w, api.SignalDrain, func(c api.Control) { w.facts.drain = asked(c.Reason, c.By, true) })
	onSignal(w, api.SignalStop, func(c api.Control) { w.facts.stop = asked(c.Reason, c.By, true) })
	onSignal(w, api.SignalSuspend, func(c api.Control) {
		w.facts.suspend = asked(c.Reason, c.By, false)
		w.SuspendWanted = true
	})
	onSignal(w, api.SignalResume, func(c api.Control) { w.facts.resume = asked(c.Reason, c.By, false) })
	onSignal(w, api.SignalRestart, func(r api.Restart) {
		if r.Spec != nil {
			w.NextSpec = &VersionSpec{*r.Spec, r.SpecVersion}
		}
		w.facts.restart = asked(r.Reason, r.By, false)
		w.facts.restart.cause, w.facts.restart.inPlace = cmp.Or(r.Cause, api.CauseOperator), r.InPlace
	})
	onSignal(w, api.SignalRotationGrant, w.granted)
	onSignal(w, api.SignalStartsHeld, func(h api.StartsHeld) { w.Held, w.TrialPause = h.Reason, 0 })
	onSignal(w, api.SignalStartReleased, func(r api.StartReleased) {
		if w.Hold.Pool && w.Machine.State == lifecycle.Pending && r.Incarnation == w.Machine.Incarnation {
			w.Released, w.TrialPause = true, r.Pause.D()
		}
	})
	onSignal(w, api.SignalLimitsApplied, w.limited)
	onSignal(w, api.SignalEnd, func(api.Control) { w.end() })
	onSignal(w, api.SignalPoolContinues, func(api.Control) { w.Excused = true })
	onSignal(w, api.SignalForceContinue, func(api.Control) { w.force = true })
}

func asked(reason, by string, rest bool) request {
	return request{wanted: true, reason: attributed(reason, by), rest: rest}
}

// onSignal has handle called with each signal of that name, in order. A payload that cannot be read is refused, not dropped.
func onSignal[T any](w *worker, name string, handle func(T)) {
	w.signals = append(w.signals, newInbox(w.ctx, name, handle, w.refuse))
}

func newInbox[T any](ctx workflow.Context, name string, handle func(T), refuse func(string)) inbox {
	channel := workflow.GetSignalChannel(ctx, name)
	return inbox{channel, func() bool {
		var raw converter.RawValue
		if !channel.ReceiveAsync(&raw) {
			return false
		}
		var value T
		if len(raw.Payload().GetData()) > 0 {
			if err := converter.GetDefaultDataConverter().FromPayload(raw.Payload(), &value); err != nil {
				refuse(name + ": the payload cannot be read: " + err.Error())
				return true
			}
		}
		handle(value)
		return true
	}}
}

// inbox is the channel of one kind of signal, and how the next one is taken from it and handled.
type inbox struct {
	channel workflow.ReceiveChannel
	receive func() bool
}

// signalled reports whether a signal waits to be handled.
func (w *worker) signalled() bool {
	for _, box := range w.signals {
		if box.channel.Len() > 0 {
			return true
		}
	}
	return false
}

// drainSignals handles every signal that is unread, and reports whether there were any. A new run would never see them.
func (w *worker) drainSignals() bool {
	found := false
	for _, box := range w.signals {
		for box.receive() {
			found = true
		}
	}
	return found
}

// takeEnding takes a request to stop or drain where nothing is in flight, so that both mean the same.
func (w *worker) takeEnding() (r request, rest bool) {
	r = w.facts.stop
	if !r.wanted {
		r = w.facts.drain
	}
	w.facts.stop, w.facts.drain = request{}, request{}
	return r, r.rest
}

func (w *worker) takeRestart() request {
	r := w.facts.restart
	w.facts.restart = request{}
	return r
}

// absorb takes requests that arrive while the process is leaving already: they only change what follows.
func (w *worker) absorb(stopToo bool) {
	if r := w.facts.drain; r.wanted {
		w.facts.drain = request{}
		w.rest(r.rest)
	}
	if r := w.facts.stop; r.wanted && stopToo {
		w.facts.stop = request{}
		w.rest(r.rest)
	}
	if r := w.takeRestart(); r.wanted {
		w.Cause = r.cause
		w.Intent, w.IntentReason = IntentReplace, r.reason // the latest word counts, also against an earlier wish to rest
	}
	if w.facts.suspend.wanted || w.facts.resume.wanted {
		w.facts.suspend, w.facts.resume, w.SuspendWanted = request{}, request{}, false
		w.refuse("suspend or resume: it is " + string(w.Machine.State))
	}
}
