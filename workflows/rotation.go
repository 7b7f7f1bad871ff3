package workflows

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
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

// rotationRespite is how long a worker that gave a rotation up serves on before it asks again.
const rotationRespite = 5 * time.Minute

// observable are the causes that policy.mode = "observe" keeps from being carried out.
var observable = []api.Cause{api.CauseGrade, api.CausePrediction, api.CausePressure}

// want has this incarnation replaced in good order. The first cause counts until it is dealt with.
func (w *worker) want(cause api.Cause, reason string) {
	if w.Rotation != nil {
		return
	}
	view := api.RotationStatus{Cause: cause, Reason: reason, Incarnation: w.Machine.Incarnation, Since: w.now()}
	logger := workflow.GetLogger(w.ctx)
	if w.Spec.Policy.Mode == spec.PolicyObserve && slices.Contains(observable, cause) {
		if !slices.Contains(w.Process.Observed, cause) {
			view.Observed = true
			w.Process.Observed = append(w.Process.Observed, cause)
			w.LastRotation = &view
			w.note(lifecycle.RotationObserved, fmt.Sprintf("%s (%s; policy.mode is %q, so nothing follows)", reason, cause, spec.PolicyObserve))
			logger.Info("a rotation was decided and, as policy.mode says, only recorded", "worker", w.name(), "cause", cause, "reason", reason)
		}
		return
	}
	logger.Info("rotation wanted", "worker", w.name(), "incarnation", w.Machine.Incarnation, "cause", cause, "reason", reason)
	w.Rotation = &rotation{RotationStatus: view}
}

// restarted takes an operator's or the pool's restart of an incarnation that serves. The pool has given the turn already.
func (w *worker) restarted(r request) {
	if s := w.Successor; s != nil && w.NextSpec != nil && s.SpecVersion != w.NextSpec.Version {
		w.dismissSuccessor("a newer spec is to be started")
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
	if wait := r.RetryAt.Sub(w.now()); wait > 0 && !w.facts.retry {
		if w.work.retry == nil {
			w.timer(&w.work.retry, &w.facts.retry, timerOptions{wait, "before the rotation is tried again"})
		}
		return false
	}
	w.facts.retry = false
	stopTask(&w.work.retry)
	r.RetryAt = time.Time{}
	if !r.Granted {
		if w.Orphan {
			r.Granted = true
			return true
		}
		if !r.Asked {
			r.Asked = true
			w.post(api.SignalRotationRequest, api.RotationRequest{
				Slot: w.Slot, Incarnation: w.Machine.Incarnation, Cause: r.Cause, Reason: r.Reason,
			})
		}
		return false
	}
	switch {
	case len(w.Leaving) > 0: // no third process beside these two
		return false
	case r.InPlace || !w.nextSpec().Rotation.Surge:
		r.InPlace = true
		w.Cause = r.Cause
		w.intend(IntentReplace, r.Reason)
		w.next(lifecycle.Drain, r.Reason, nil)
		return true
	case w.Successor == nil:
		w.beginSuccessor()
		return true
	}
	return w.succeed()
}

// nextSpec is what the next incarnation runs.
func (w *worker) nextSpec() spec.Spec {
	if w.NextSpec != nil {
		return w.NextSpec.Spec
	}
	return w.Spec
}

// granted hears from the pool that it is this worker's turn.
func (w *worker) granted(g api.RotationGrant) {
	if r := w.Rotation; r != nil && g.Incarnation == w.Machine.Incarnation && g.Incarnation == r.Incarnation {
		r.Granted = true
		return
	}
	w.endTurn(g.Incarnation, false, "it is not wanted any more")
}

// giveUpRotation lets the incarnation serve on. What was not asked for by somebody is tried again later.
func (w *worker) giveUpRotation(why string) {
	r := w.Rotation
	r.Failed = why
	last := r.RotationStatus
	w.LastRotation, w.Rotation = &last, nil
	workflow.GetLogger(w.ctx).Warn("rotation given up; the incarnation serves on", "worker", w.name(), "cause", r.Cause, "reason", why)
	w.note(lifecycle.RotationFailed, "Serving on as incarnation "+fmt.Sprint(r.Incarnation)+": "+why)
	w.endTurn(r.Incarnation, true, why)
	if w.NextSpec != nil {
		w.NextSpec = nil // a spec that cannot start is not what a crash should bring up
		return
	}
	if r.Cause != api.CauseOperator {
		again := rotation{RotationStatus: r.RotationStatus, RetryAt: w.now().Add(rotationRespite)}
		again.Granted = false
		w.Rotation = &again
	}
}

// dropRotation forgets a rotation that another end of the incarnation has overtaken.
func (w *worker) dropRotation() {
	if r := w.Rotation; r != nil && (r.Granted || r.Asked) {
		w.endTurn(r.Incarnation, false, "the incarnation ended otherwise")
	}
	w.Rotation, w.facts.retry = nil, false
	stopTask(&w.work.retry)
	w.dismissSuccessor("it is not needed any more")
}

// yieldTurn gives the turn back before the worker is suspended, which may last; it asks again when it is resumed.
func (w *worker) yieldTurn() {
	r := w.Rotation
	if r == nil {
		return
	}
	w.dismissSuccessor("the worker is suspended")
	if r.Asked { // a restart was not asked for, and waits with its rollout
		w.endTurn(r.Incarnation, false, "the worker is suspended")
		r.Granted, r.Asked = false, false
	}
}

// endTurn tells the pool that this worker is through with its turn.
func (w *worker) endTurn(incarnation int64, failed bool, reason string) {
	if !w.Orphan {
		w.post(api.SignalRotationDone, api.RotationDone{Slot: w.Slot, Incarnation: incarnation, Failed: failed, Reason: reason})
	}
}

// post sends the pool a message; a run does not end before it is delivered.
func (w *worker) post(name string, message any) {
	w.telling++
	future := workflow.SignalExternalWorkflow(w.ctx, api.PoolWorkflowID(w.Pool), "", name, message)
	w.ear.addFuture(future, func(f workflow.Future) {
		w.telling--
		if err := f.Get(w.ctx, nil); err != nil { // a pool that is no more ends the worker elsewhere
			workflow.GetLogger(w.ctx).Warn("the pool was not told", "message", name, "error", err)
		}
	})
}

// rules are the limits of an incarnation under the spec.
func (w *worker) rules() policy.Rotation {
	r := w.Spec.Rotation
	return policy.Rotation{
		MaxRequests: int64(r.MaxRequests), Jitter: r.Jitter, MaxMemoryBytes: int64(r.MaxMemory), MaxUptime: r.MaxUptime.D(),
	}
}

// watchRules are what the host holds this incarnation against; none while it waits for its turn.
func (w *worker) watchRules() api.WatchRules {
	if w.Rotation != nil || w.Machine.State == lifecycle.Suspended {
		return api.WatchRules{}
	}
	limit := int64(w.Spec.Rotation.MaxMemory)
	rules := api.WatchRules{
		Limits:       true,
		RequestLimit: w.Process.RequestLimit, MaxMemoryBytes: limit,
		Grade: !slices.Contains(w.Process.Observed, api.CauseGrade), GradeAfter: spec.Duration(policy.GradeRespite(w.GradeRow)),
	}
	if w.Process.BornBytes >= limit { // the next one would be born as large
		rules.MaxMemoryBytes = 0
	}
	if w.Spec.Prediction.Enabled && !slices.Contains(w.Process.Observed, api.CausePrediction) {
		rules.Window, rules.Horizon, rules.MemoryLimitBytes = w.Spec.Prediction.Window, w.Spec.Prediction.Horizon, limit
		if hard := int64(w.Spec.Limits.Memory); hard > 0 && (limit == 0 || hard < limit) {
			rules.MemoryLimitBytes = hard
		}
	}
	return rules
}

// drawLimit draws the request limit of an incarnation that has become ready, and notes what memory it was born with.
func (w *worker) drawLimit() {
	w.Process.RequestLimit = w.rules().RequestLimit(rand.New(workflow.GetRandomStream(w.ctx, "rotation")).Float64())
	if w.Sample != nil {
		w.Process.BornBytes = w.Sample.RSSBytes
	}
	if limit := int64(w.Spec.Rotation.MaxMemory); limit > 0 && w.Process.BornBytes >= limit {
		workflow.GetLogger(w.ctx).Warn("the process uses more than rotation.max_memory from the start, so that rule is left out; raise it",
			"worker", w.name(), "bytes", w.Process.BornBytes, "max_memory", w.Spec.Rotation.MaxMemory)
	}
}

// countedOut has the incarnation replaced when checkins alone show that it has served its share; Watch sees it sooner, where calls
// go through the gateway.
func (w *worker) countedOut() {
	if limit := w.Process.RequestLimit; limit > 0 && w.Process.Requests >= limit {
		w.want(api.CauseRequests, policy.Rotation{MaxRequests: limit}.Next(policy.Life{Requests: w.Process.Requests}, 0).Reason)
	}
}

// keepUptimeTimer keeps the one timer that ends an incarnation for its age.
func (w *worker) keepUptimeTimer() {
	limit := w.Spec.Rotation.MaxUptime.D()
	if limit <= 0 || w.Rotation != nil || w.Machine.StartedAt.IsZero() {
		return
	}
	uptime := w.now().Sub(w.Machine.StartedAt)
	if uptime >= limit {
		stopTask(&w.work.uptime)
		w.want(api.CauseUptime, policy.Rotation{MaxUptime: limit}.Next(policy.Life{Uptime: uptime}, 0).Reason)
		return
	}
	if w.work.uptime == nil && w.now().Add(limit-uptime).Before(w.NextCheckpoint) { // else the checkpoint comes first, and asks again
		w.timer(&w.work.uptime, &w.facts.uptime, timerOptions{limit - uptime, "rotation.max_uptime"})
	}
}

// replaced counts what the incarnation that begins now follows on.
func (w *worker) replaced() {
	cause := w.Cause
	w.Cause = ""
	if cause == "" {
		return // the first, or one that no host has taken
	}
	if r := w.Rotation; r != nil && r.Granted && cause == r.Cause {
		w.Counters.Rotations++
		w.Counters.RotationsByReason = counted(w.Counters.RotationsByReason, cause)
		if cause == api.CauseGrade {
			w.GradeRow++
		} else {
			w.GradeRow = 0
		}
		last := r.RotationStatus
		w.LastRotation, w.Rotation = &last, nil
		return
	}
	w.Counters.RestartsByReason = counted(w.Counters.RestartsByReason, cause)
}

// counted is a map with one more of a cause.
func counted(by map[string]int64, cause api.Cause) map[string]int64 {
	if by == nil {
		by = map[string]int64{}
	}
	by[string(cause)]++
	return by
}

// cut records calls that were still in flight when waiting was over.
func (w *worker) cut(n int) {
	w.Counters.CallsCut += int64(n)
	if w.Rotation != nil {
		w.Rotation.Cut += n
	}
}

func (w *worker) cutReason(n int) string {
	return fmt.Sprintf("%s of drain timeout is over; calls cut: %d", w.Spec.Rotation.DrainTimeout, n)
}
