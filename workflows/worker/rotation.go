package worker

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// rotation is the replacement of an incarnation that still serves. It is wanted, requested of the pool, granted, and
// carried out.
type rotation struct {
	api.RotationStatus
	Asked bool `json:"asked,omitempty"` // the pool
	// AskedAt is when the pool was asked last, GrantedAt when its grant arrived. A request or a grant may get lost.
	AskedAt   time.Time `json:"asked_at,omitzero"`
	GrantedAt time.Time `json:"granted_at,omitzero"`
	// InPlace stops the old process before the next one starts: rotation.surge is off, or no host has capacity for both.
	InPlace bool `json:"in_place,omitempty"`
	// Attempts counts failed starts of the next process; the next attempt waits until RetryAt.
	Attempts int       `json:"attempts,omitempty"`
	RetryAt  time.Time `json:"retry_at,omitzero"`
	started  bool      // emitted in this run
	// refused says that a host refused the next process in this run, since it drains or has no resources: another one may
	// have capacity.
	refused bool
}

// rotationRetryDelay is how long a worker that gave up a rotation waits before it requests the rotation again.
const rotationRetryDelay = 5 * time.Minute

// askInterval is after how long a worker asks its pool again. No timer measures it: the worker looks when it wakes, at
// its health checkpoints at the latest.
const askInterval = 5 * time.Minute

// observableCauses are the causes that policy.mode = "observe" only records.
var observableCauses = []api.Cause{api.CauseGrade, api.CausePrediction, api.CausePressure}

// rotator decides when an incarnation is rotated, and carries rotations out.
type rotator struct{ *worker }

// want requests a rotation of this incarnation. The first cause counts until the rotation has ended.
func (r rotator) want(cause api.Cause, reason string) {
	if r.Rotation != nil {
		return
	}
	status := api.RotationStatus{Cause: cause, Reason: reason, Incarnation: r.Machine.Incarnation, Since: r.Now()}
	if r.Spec.Policy.Mode == spec.PolicyObserve && slices.Contains(observableCauses, cause) {
		r.observeOnly(status)
		return
	}
	r.log("rotation requested", cause, reason)
	r.Rotation = &rotation{RotationStatus: status}
	r.emit(api.EventRotationRequested, *r.Rotation)
}

// observeOnly records a rotation that policy.mode = "observe" does not carry out, once for each cause.
func (r rotator) observeOnly(status api.RotationStatus) {
	if slices.Contains(r.Process.ObservedCauses, status.Cause) {
		return
	}
	status.Observed = true
	r.Process.ObservedCauses = append(r.Process.ObservedCauses, status.Cause)
	r.LastRotation = &status
	r.emit(api.EventRotationRequested, rotation{RotationStatus: status})
	r.record(lifecycle.RotationObserved,
		fmt.Sprintf("%s (%s; not carried out: policy.mode = %q)", status.Reason, status.Cause, spec.PolicyObserve))
	r.log("rotation recorded and not carried out", status.Cause, status.Reason)
}

func (r rotator) log(message string, cause api.Cause, reason string) {
	workflow.GetLogger(r.Ctx).Info(message, "worker", r.name(), "incarnation", r.Machine.Incarnation, "cause", cause,
		"reason", reason)
}

// beginRestart replaces an incarnation that serves, on command of an operator or the pool. It needs no grant.
func (r rotator) beginRestart(request PendingRequest) {
	inPlace := request.InPlace || r.Machine.State == lifecycle.Suspended || r.SuspendWanted
	r.surge.cancelSuccessor("superseded by a restart") // it may have begun with an older spec, or older files
	r.log("restart requested", request.Cause, request.Reason)
	status := api.RotationStatus{Cause: request.Cause, Reason: request.Reason, Incarnation: r.Machine.Incarnation,
		Since: r.Now(), Granted: true}
	r.Rotation = &rotation{RotationStatus: status, InPlace: inPlace}
	r.emit(api.EventRotationRequested, *r.Rotation)
}

// rotate takes the wanted rotation one step further, and reports whether anything changed.
func (r rotator) rotate() bool {
	rotation := r.Rotation
	if rotation == nil || (r.Machine.State == lifecycle.Suspended || r.SuspendWanted) && !rotation.InPlace {
		r.tasks.retry.Reset() // a resumption reads RetryAt
		return false
	}
	if wait := rotation.RetryAt.Sub(r.Now()); wait > 0 && !r.tasks.retry.Ended() {
		if !r.tasks.retry.Running() {
			r.tasks.retry.Start(r.Loop, wait, "before the rotation is retried")
		}
		return false
	}
	r.tasks.retry.Reset()
	rotation.RetryAt = time.Time{}
	if rotation.Granted && rotation.Asked && r.Successor == nil && !rotation.GrantedAt.IsZero() &&
		r.Now().Sub(rotation.GrantedAt) > GrantTimeout(r.Spec) {
		rotation.Granted, rotation.Asked = false, false // the pool has taken the grant back
	}
	if !rotation.Granted {
		return r.awaitGrant()
	}
	switch {
	case len(r.Draining) > 0: // a worker has at most two processes
		return false
	case rotation.InPlace || !r.nextSpec().Rotation.Surge:
		rotation.InPlace = true
		r.emitStarted()
		r.endIncarnation(rotation.Cause, IntentReplace, rotation.Reason)
		r.transition(lifecycle.Drain, rotation.Reason)
		return true
	case r.Successor == nil:
		r.emitStarted()
		r.surge.startSuccessor()
		return true
	}
	return r.surge.attemptSwitch()
}

// awaitGrant requests the rotation of the pool, again after askInterval; a standalone worker grants it itself.
func (r rotator) awaitGrant() bool {
	rotation := r.Rotation
	if r.Standalone {
		rotation.Granted = true
		return true
	}
	if !rotation.Asked || r.Now().Sub(rotation.AskedAt) >= askInterval {
		rotation.Asked, rotation.AskedAt = true, r.Now()
		r.reporter.signalPool(api.SignalRotationRequest, api.RotationRequest{
			Slot: r.Slot, Incarnation: r.Machine.Incarnation, Cause: rotation.Cause, Reason: rotation.Reason,
		})
	}
	return false
}

// granted takes the pool's grant to rotate an incarnation.
func (r rotator) granted(g api.RotationGrant) {
	if rotation := r.Rotation; rotation != nil && g.Incarnation == r.Machine.Incarnation &&
		g.Incarnation == rotation.Incarnation {
		rotation.Granted, rotation.GrantedAt = true, r.Now()
		return
	}
	r.endDisruption(g.Incarnation, false, "the rotation is no longer needed")
}

// GrantTimeout is how long a worker may take over a rotation that its pool has granted, until the next incarnation is
// ready: to start it, to drain and stop the one before it, and to notice that a host is lost.
func GrantTimeout(s spec.Spec) time.Duration {
	return s.Start.Timeout.D() + s.Rotation.DrainTimeout.D() + s.Pool.StopGrace.D() + grantSlack
}

const grantSlack = 2 * time.Minute

// nextSpec is the spec of the next incarnation.
func (r rotator) nextSpec() spec.Spec {
	if r.NextSpec != nil {
		return r.NextSpec.Spec
	}
	return r.Spec
}

// abandonRotation gives the rotation up; the incarnation stays in service. A rotation that no operator requested is
// retried later.
func (r rotator) abandonRotation(reason string) {
	r.Rotation.Failed = reason
	failed := r.Rotation.RotationStatus
	r.endRotation()
	workflow.GetLogger(r.Ctx).Warn("rotation failed; the incarnation stays in service", "worker", r.name(),
		"cause", failed.Cause, "reason", reason)
	r.record(lifecycle.RotationFailed, fmt.Sprintf("Incarnation %d stays in service: %s", failed.Incarnation, reason))
	r.endDisruption(failed.Incarnation, true, reason)
	if r.NextSpec != nil {
		r.NextSpec = nil // a restart after a crash must not use a spec that cannot start
		return
	}
	if failed.Cause != api.CauseOperator {
		failed.Granted = false
		r.Rotation = &rotation{RotationStatus: failed, RetryAt: r.Now().Add(rotationRetryDelay)}
	}
}

// endRotation makes the rotation the last one.
func (r rotator) endRotation() {
	r.emit(api.EventRotationFinished, *r.Rotation)
	last := r.Rotation.RotationStatus
	r.LastRotation, r.Rotation = &last, nil
}

// cancelRotation drops a rotation: the incarnation ends for another reason.
func (r rotator) cancelRotation() {
	if rotation := r.Rotation; rotation != nil {
		rotation.Failed = "the incarnation ended for another reason"
		if rotation.Granted || rotation.Asked {
			r.endDisruption(rotation.Incarnation, false, rotation.Failed)
		}
		r.emit(api.EventRotationFinished, *rotation)
	}
	r.Rotation = nil
	r.tasks.retry.Reset()
	r.surge.cancelSuccessor("no longer needed")
}

// yieldDisruption gives up the grant before the worker is suspended, which may last. The worker requests it again when
// it is resumed.
func (r rotator) yieldDisruption() {
	rotation := r.Rotation
	if rotation == nil {
		return
	}
	r.surge.cancelSuccessor("worker suspended")
	if rotation.Asked { // a restart was not requested of the pool, and waits
		r.endDisruption(rotation.Incarnation, false, "worker suspended")
		rotation.Granted, rotation.Asked = false, false
	}
}

// endDisruption reports to the pool that the rotation of an incarnation has ended.
func (r rotator) endDisruption(incarnation int64, failed bool, reason string) {
	if !r.Standalone {
		r.reporter.signalPool(api.SignalRotationDone,
			api.RotationDone{Slot: r.Slot, Incarnation: incarnation, Failed: failed, Reason: reason, Restart: r.LastRestart})
	}
}

// countReplacement counts the incarnation that begins under the cause of the previous one's end.
func (r rotator) countReplacement() {
	cause := r.Cause
	r.Cause = ""
	if cause == "" {
		return // the first incarnation, or one that no host has taken
	}
	if rotation := r.Rotation; rotation != nil && rotation.Granted && cause == rotation.Cause {
		r.Counters.Rotations++
		r.Counters.RotationsByReason = incremented(r.Counters.RotationsByReason, cause)
		if cause == api.CauseGrade {
			r.GradeRotations++
		} else {
			r.GradeRotations = 0
		}
		r.endRotation()
		return
	}
	r.Counters.RestartsByReason = incremented(r.Counters.RestartsByReason, cause)
}

// incremented is a map with one more of a cause.
func incremented(by map[string]int64, cause api.Cause) map[string]int64 {
	if by == nil {
		by = map[string]int64{}
	}
	by[string(cause)]++
	return by
}

// recordCutCalls counts calls that were still in flight after the drain timeout.
func (r rotator) recordCutCalls(n int) {
	r.Counters.CallsCut += int64(n)
	if r.Rotation != nil {
		r.Rotation.CallsCut += n
	}
}
