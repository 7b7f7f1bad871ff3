package worker

import (
	"fmt"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
)

// decideNext decides what follows the end of an incarnation.
func (w *worker) decideNext() bool {
	if w.surge.isReady() && !w.Ending && w.Intent != IntentRest && !w.isRequested(api.SignalStop) &&
		!w.isRequested(api.SignalDrain) {
		w.surge.activate()
		return true
	}
	if r := w.Rotation; r != nil && (!r.InPlace || w.Cause != r.Cause || w.Intent == IntentRest) {
		w.rotator.cancelRotation() // the pool must not wait for it
	}
	if w.Ending {
		return false
	}
	if r := w.takeRequest(api.SignalRestart); r != nil {
		w.Failures = 0
		w.Cause, w.StartPermitted = r.Cause, true
		w.starter.beginIncarnation(r.Reason)
		return true
	}
	if r := w.takeEnd(); r != nil {
		w.endIncarnation("", IntentRest, r.Reason)
		if w.Resting {
			w.refuse("stop or drain: the worker has no process")
			w.reporter.reportState() // a restart that the pool decided on before does not count any more
		}
	}
	if w.Resting {
		w.suspender.drop()
		return false
	}
	if w.Wait.Capacity {
		w.starter.skipUsedNumbers()
		w.transition(lifecycle.Hold, w.Wait.Reason)
		return true
	}
	switch w.Intent {
	case IntentRest:
		w.Resting = true
		return true
	case IntentReplace:
		if r := w.Rotation; r != nil { // in place; the rate counted it with its grant, if the pool gave one
			w.StartPermitted = w.StartPermitted || r.Asked
			w.starter.passBreaker()
		}
		w.starter.beginIncarnation(w.IntentReason)
		return true
	}
	w.recoverOrGiveUp()
	return true
}

// recoverOrGiveUp does what the recovery policy decides after an end that nobody requested.
func (w *worker) recoverOrGiveUp() {
	healthy, recovery := w.life(), policy.Recovery(w.Spec.Recovery)
	switch end := recovery.AfterEnd(w.Machine.State, recovery.IsShortLived(healthy), w.lastReason()); end.Action {
	case policy.Rest:
		w.Resting, w.TrialPause = true, 0
		w.Wait.Reason = end.Reason
		w.warn("worker rests", end.Reason)
		return
	case policy.Restart:
		w.ShortLived = false
		w.starter.beginIncarnation(end.Reason)
		return
	}
	w.Failures, w.ShortLived = recovery.CountFailure(w.Failures, healthy), recovery.IsShortLived(healthy)
	decision := recovery.Next(w.Failures, w.ShortLived, w.lastReason(), w.backoffRandom())
	if w.TrialPause > decision.Delay {
		decision.Delay = w.TrialPause
		decision.Reason += fmt.Sprintf(" (at least %s apart: this worker tests the pool's breaker)", w.TrialPause)
	}
	switch {
	case decision.Action == policy.GiveUp:
		w.Resting, w.TrialPause = true, 0
		w.Wait.Reason = decision.Reason
		w.GaveUp = true
		w.record(lifecycle.GaveUp, decision.Reason)
		w.warn("worker gave up", decision.Reason)
	case decision.Delay > 0:
		w.Wait = Wait{Until: w.Now().Add(decision.Delay), Reason: decision.Reason}
		w.starter.skipUsedNumbers()
		w.transition(lifecycle.Hold, decision.Reason)
		w.warn("worker backs off", decision.Reason)
	default:
		w.warn("restarting worker", decision.Reason)
		w.starter.beginIncarnation(decision.Reason)
	}
}

// life is how long the current process has been in service, or was before it ended; 0 if it never was.
func (w *worker) life() time.Duration {
	if w.Machine.StartedAt.IsZero() {
		return 0
	}
	return w.Now().Sub(w.Machine.StartedAt)
}

// failures is the number of consecutive failures. A process that is healthy for recovery.healthy_reset ends them.
func (w *worker) failures() int {
	if life := w.life(); w.Machine.State.Live() && life > 0 && life >= w.Spec.Recovery.HealthyReset.D() {
		return 0
	}
	return w.Failures
}

// backoffRandom spreads backoffs. It is deterministic in replay.
func (w *worker) backoffRandom() float64 {
	return rand.New(workflow.GetRandomStream(w.Ctx, "backoff")).Float64()
}
