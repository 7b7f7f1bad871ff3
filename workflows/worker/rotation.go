package worker

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// rotation is the replacement of an incarnation that still serves: wanted, then asked of the pool, then granted, then carried out.
type rotation struct {
	api.RotationStatus
	Asked bool `json:"asked,omitempty"`
	// InPlace has the old process drain before the next one starts: rotation.surge is off, or no host had room for both.
	InPlace bool `json:"in_place,omitempty"`
	// Tries counts the starts of the next process that failed; the next one waits until RetryAt.
	Tries   int       `json:"tries,omitempty"`
	RetryAt time.Time `json:"retry_at,omitzero"`
}

// rotationRetryDelay is how long a worker that gave a rotation up serves on before it asks again.
const rotationRetryDelay = 5 * time.Minute

// observableCauses are the causes that policy.mode = "observe" keeps from being carried out.
var observableCauses = []api.Cause{api.CauseGrade, api.CausePrediction, api.CausePressure}

// requestRotation has this incarnation replaced in good order. The first cause counts until it is dealt with.
func (w *worker) requestRotation(cause api.Cause, reason string) {
	if w.Rotation != nil {
		return
	}
	view := api.RotationStatus{Cause: cause, Reason: reason, Incarnation: w.Machine.Incarnation, Since: w.now()}
	logger := workflow.GetLogger(w.ctx)
	if w.Spec.Policy.Mode == spec.PolicyObserve && slices.Contains(observableCauses, cause) {
		if !slices.Contains(w.Process.ObservedCauses, cause) {
			view.Observed = true
			w.Process.ObservedCauses = append(w.Process.ObservedCauses, cause)
			w.LastRotation = &view
			w.record(lifecycle.RotationObserved, fmt.Sprintf("%s (%s; policy.mode is %q, so nothing follows)", reason, cause, spec.PolicyObserve))
			logger.Info("a rotation was decided and, as policy.mode says, only recorded", "worker", w.name(), "cause", cause, "reason", reason)
		}
		return
	}
	logger.Info("rotation wanted", "worker", w.name(), "incarnation", w.Machine.Incarnation, "cause", cause, "reason", reason)
	w.Rotation = &rotation{RotationStatus: view}
}

// beginRestart takes an operator's or the pool's restart of an incarnation that serves. The pool has given the turn already.
func (w *worker) beginRestart(r request) {
	if s := w.Successor; s != nil && w.NextSpec != nil && s.SpecVersion != w.NextSpec.Version {
		w.cancelSuccessor("a newer spec is to be started")
	}
	workflow.GetLogger(w.ctx).Info("restart wanted", "worker", w.name(), "incarnation", w.Machine.Incarnation, "cause", r.cause, "reason", r.reason)
	view := api.RotationStatus{Cause: r.cause, Reason: r.reason, Incarnation: w.Machine.Incarnation, Since: w.now(), Granted: true}
	w.Rotation = &rotation{RotationStatus: view, InPlace: r.inPlace || w.Machine.State == lifecycle.Suspended}
}

// rotate takes the wanted rotation a step further.
func (w *worker) rotate() bool {
	r := w.Rotation
	if r == nil || w.Machine.State == lifecycle.Suspended && !r.InPlace {
		return false
	}
	if wait := r.RetryAt.Sub(w.now()); wait > 0 && !w.events.retry {
		if w.tasks.retry == nil {
			w.timer(&w.tasks.retry, &w.events.retry, timerOptions{wait, "before the rotation is tried again"})
		}
		return false
	}
	w.events.retry = false
	loop.CancelTask(&w.tasks.retry)
	r.RetryAt = time.Time{}
	if !r.Granted {
		if w.Standalone {
			r.Granted = true
			return true
		}
		if !r.Asked {
			r.Asked = true
			w.signalPool(api.SignalRotationRequest, api.RotationRequest{
				Slot: w.Slot, Incarnation: w.Machine.Incarnation, Cause: r.Cause, Reason: r.Reason,
			})
		}
		return false
	}
	switch {
	case len(w.Draining) > 0: // no third process beside these two
		return false
	case r.InPlace || !w.nextSpec().Rotation.Surge:
		r.InPlace = true
		w.Cause = r.Cause
		w.setIntent(IntentReplace, r.Reason)
		w.transition(lifecycle.Drain, r.Reason, nil)
		return true
	case w.Successor == nil:
		w.startSuccessor()
		return true
	}
	return w.attemptSwitch()
}

// nextSpec is what the next incarnation runs.
func (w *worker) nextSpec() spec.Spec {
	if w.NextSpec != nil {
		return w.NextSpec.Spec
	}
	return w.Spec
}

// rotationGranted hears from the pool that it is this worker's turn.
func (w *worker) rotationGranted(g api.RotationGrant) {
	if r := w.Rotation; r != nil && g.Incarnation == w.Machine.Incarnation && g.Incarnation == r.Incarnation {
		r.Granted = true
		return
	}
	w.endDisruption(g.Incarnation, false, "it is not wanted any more")
}

// abandonRotation lets the incarnation serve on. What was not asked for by somebody is tried again later.
func (w *worker) abandonRotation(why string) {
	r := w.Rotation
	r.Failed = why
	last := r.RotationStatus
	w.LastRotation, w.Rotation = &last, nil
	workflow.GetLogger(w.ctx).Warn("rotation given up; the incarnation serves on", "worker", w.name(), "cause", r.Cause, "reason", why)
	w.record(lifecycle.RotationFailed, "Serving on as incarnation "+fmt.Sprint(r.Incarnation)+": "+why)
	w.endDisruption(r.Incarnation, true, why)
	if w.NextSpec != nil {
		w.NextSpec = nil // a spec that cannot start is not what a crash should bring up
		return
	}
	if r.Cause != api.CauseOperator {
		again := rotation{RotationStatus: r.RotationStatus, RetryAt: w.now().Add(rotationRetryDelay)}
		again.Granted = false
		w.Rotation = &again
	}
}

// cancelRotation forgets a rotation that another end of the incarnation has overtaken.
func (w *worker) cancelRotation() {
	if r := w.Rotation; r != nil && (r.Granted || r.Asked) {
		w.endDisruption(r.Incarnation, false, "the incarnation ended otherwise")
	}
	w.Rotation, w.events.retry = nil, false
	loop.CancelTask(&w.tasks.retry)
	w.cancelSuccessor("it is not needed any more")
}

// yieldDisruption gives the turn back before the worker is suspended, which may last; it asks again when it is resumed.
func (w *worker) yieldDisruption() {
	r := w.Rotation
	if r == nil {
		return
	}
	w.cancelSuccessor("the worker is suspended")
	if r.Asked { // a restart was not asked for, and waits with its rollout
		w.endDisruption(r.Incarnation, false, "the worker is suspended")
		r.Granted, r.Asked = false, false
	}
}

// endDisruption tells the pool that this worker is through with its turn.
func (w *worker) endDisruption(incarnation int64, failed bool, reason string) {
	if !w.Standalone {
		w.signalPool(api.SignalRotationDone, api.RotationDone{Slot: w.Slot, Incarnation: incarnation, Failed: failed, Reason: reason})
	}
}

// signalPool sends the pool a message; a run does not end before it is delivered.
func (w *worker) signalPool(name string, message any) {
	w.signalsInFlight++
	future := workflow.SignalExternalWorkflow(w.ctx, api.PoolWorkflowID(w.Pool), "", name, message)
	w.selector.AddFuture(future, func(f workflow.Future) {
		w.signalsInFlight--
		if err := f.Get(w.ctx, nil); err != nil { // a pool that is no more ends the worker elsewhere
			workflow.GetLogger(w.ctx).Warn("the pool was not told", "message", name, "error", err)
		}
	})
}

// countReplacement counts what the incarnation that begins now follows on.
func (w *worker) countReplacement() {
	cause := w.Cause
	w.Cause = ""
	if cause == "" {
		return // the first, or one that no host has taken
	}
	if r := w.Rotation; r != nil && r.Granted && cause == r.Cause {
		w.Counters.Rotations++
		w.Counters.RotationsByReason = incremented(w.Counters.RotationsByReason, cause)
		if cause == api.CauseGrade {
			w.GradeRotations++
		} else {
			w.GradeRotations = 0
		}
		last := r.RotationStatus
		w.LastRotation, w.Rotation = &last, nil
		return
	}
	w.Counters.RestartsByReason = incremented(w.Counters.RestartsByReason, cause)
}

// incremented is a map with one more of a cause.
func incremented(by map[string]int64, cause api.Cause) map[string]int64 {
	if by == nil {
		by = map[string]int64{}
	}
	by[string(cause)]++
	return by
}

// recordCutCalls records calls that were still in flight when waiting was over.
func (w *worker) recordCutCalls(n int) {
	w.Counters.CallsCut += int64(n)
	if w.Rotation != nil {
		w.Rotation.Cut += n
	}
}

func (w *worker) cutReason(n int) string {
	return fmt.Sprintf("%s of drain timeout is over; calls cut: %d", w.Spec.Rotation.DrainTimeout, n)
}
