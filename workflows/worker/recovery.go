package worker

import (
	"fmt"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
)

// decideNext says what follows the end of an incarnation.
func (w *worker) decideNext() bool {
	w.recordSuccessorReady()
	if s := w.Successor; s != nil && s.Ready != nil && !w.Ending && w.Intent != IntentRest && !w.events.stop.wanted && !w.events.drain.wanted {
		w.activateSuccessor()
		return true
	}
	if r := w.Rotation; r != nil && !(r.InPlace && w.Cause == r.Cause) {
		w.cancelRotation()
	}
	if w.Ending {
		return false
	}
	if r := w.takeRestart(); r.wanted {
		w.Failures = 0
		w.Cause, w.StartReleased = r.cause, true
		w.beginIncarnation(r.reason)
		return true
	}
	if r, rest := w.takeEnding(); r.wanted && rest {
		if w.Resting {
			w.refuse("it has ended already")
		}
		w.restIfAsked(true)
	}
	if w.Resting {
		w.events.suspend, w.events.resume = request{}, request{}
		return false
	}
	if w.Wait.Capacity {
		w.skipUsedNumbers()
		w.transition(lifecycle.Hold, w.Wait.Reason, nil)
		return true
	}
	switch w.Intent {
	case IntentRest:
		w.Resting = true
		return true
	case IntentReplace:
		w.beginIncarnation(w.IntentReason)
		return true
	}
	return w.recoverOrGiveUp()
}

// recoverOrGiveUp asks the recovery policy what follows an end that nobody asked for.
func (w *worker) recoverOrGiveUp() bool {
	var healthy time.Duration
	if started := w.Machine.StartedAt; !started.IsZero() {
		healthy = w.now().Sub(started)
	}
	recovery := w.recovery()
	w.Failures, w.ShortLived = recovery.Counted(w.Failures, healthy), recovery.Brief(healthy)
	decision := recovery.Next(w.Failures, w.lastReason(), rand.New(workflow.GetRandomStream(w.ctx, "backoff")).Float64())
	if w.TrialPause > decision.Delay {
		decision.Delay = w.TrialPause
		decision.Reason += fmt.Sprintf(" (at least %s apart, since this worker tries for the whole pool)", w.TrialPause)
	}
	switch {
	case decision.Action == policy.GiveUp:
		w.Resting, w.TrialPause = true, 0
		w.Wait.Reason = decision.Reason
		w.GaveUp = true
		w.record(lifecycle.GaveUp, decision.Reason)
		w.warn("a worker gave up", decision.Reason)
	case decision.Delay > 0:
		w.Wait = Wait{Until: w.now().Add(decision.Delay), Reason: decision.Reason}
		w.skipUsedNumbers()
		w.transition(lifecycle.Hold, decision.Reason, nil)
		w.warn("a worker is held back", decision.Reason)
	default:
		w.warn("a worker is restarted", decision.Reason)
		w.beginIncarnation(decision.Reason)
	}
	return true
}

func (w *worker) recovery() policy.Recovery {
	r := w.Spec.Recovery
	return policy.Recovery{
		MaxConsecutiveFailures: r.MaxConsecutiveFailures, BackoffInitial: r.BackoffInitial.D(), BackoffMax: r.BackoffMax.D(),
		BackoffMultiplier: r.BackoffMultiplier, HealthyReset: r.HealthyReset.D(),
	}
}

// setIntent sets what follows the end of this incarnation, unless something stronger is already to follow.
func (w *worker) setIntent(intent Intent, reason string) {
	if rank(intent) > rank(w.Intent) {
		w.Intent, w.IntentReason = intent, reason
	}
}

func rank(i Intent) int {
	switch i {
	case IntentReplace:
		return 1
	case IntentRest:
		return 2
	}
	return 0
}

// rest has the worker stay down after its end when that was asked for.
func (w *worker) restIfAsked(wanted bool) {
	if wanted {
		w.setIntent(IntentRest, "asked to rest")
	}
}

// lastReason is why the worker is in the state it is in.
func (w *worker) lastReason() string {
	for i := len(w.Machine.Ring) - 1; i >= 0; i-- {
		if t := w.Machine.Ring[i]; !t.Note() {
			return t.Reason
		}
	}
	return ""
}
