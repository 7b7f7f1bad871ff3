package worker

import (
	"math/rand/v2"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// rotationPolicy are the limits of an incarnation under the spec.
func (w *worker) rotationPolicy() policy.Rotation {
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
		Grade: !slices.Contains(w.Process.ObservedCauses, api.CauseGrade), GradeAfter: spec.Duration(policy.GradeRespite(w.GradeRotations)),
	}
	if w.Process.InitialBytes >= limit { // the next one would be born as large
		rules.MaxMemoryBytes = 0
	}
	if w.Spec.Prediction.Enabled && !slices.Contains(w.Process.ObservedCauses, api.CausePrediction) {
		rules.Window, rules.Horizon, rules.MemoryLimitBytes = w.Spec.Prediction.Window, w.Spec.Prediction.Horizon, limit
		if hard := int64(w.Spec.Limits.Memory); hard > 0 && (limit == 0 || hard < limit) {
			rules.MemoryLimitBytes = hard
		}
	}
	return rules
}

// drawRequestLimit draws the request limit of an incarnation that has become ready, and notes what memory it was born with.
func (w *worker) drawRequestLimit() {
	w.Process.RequestLimit = w.rotationPolicy().RequestLimit(rand.New(workflow.GetRandomStream(w.ctx, "rotation")).Float64())
	if w.Sample != nil {
		w.Process.InitialBytes = w.Sample.RSSBytes
	}
	if limit := int64(w.Spec.Rotation.MaxMemory); limit > 0 && w.Process.InitialBytes >= limit {
		workflow.GetLogger(w.ctx).Warn("the process uses more than rotation.max_memory from the start, so that rule is left out; raise it",
			"worker", w.name(), "bytes", w.Process.InitialBytes, "max_memory", w.Spec.Rotation.MaxMemory)
	}
}

// checkRequestLimit has the incarnation replaced when checkins alone show that it has served its share; Watch sees it sooner, where calls
// go through the gateway.
func (w *worker) checkRequestLimit() {
	if limit := w.Process.RequestLimit; limit > 0 && w.Process.Requests >= limit {
		w.requestRotation(api.CauseRequests, policy.Rotation{MaxRequests: limit}.Next(policy.Life{Requests: w.Process.Requests}, 0).Reason)
	}
}

// ensureUptimeTimer keeps the one timer that ends an incarnation for its age.
func (w *worker) ensureUptimeTimer() {
	limit := w.Spec.Rotation.MaxUptime.D()
	if limit <= 0 || w.Rotation != nil || w.Machine.StartedAt.IsZero() {
		return
	}
	uptime := w.now().Sub(w.Machine.StartedAt)
	if uptime >= limit {
		loop.CancelTask(&w.tasks.uptime)
		w.requestRotation(api.CauseUptime, policy.Rotation{MaxUptime: limit}.Next(policy.Life{Uptime: uptime}, 0).Reason)
		return
	}
	if w.tasks.uptime == nil && w.now().Add(limit-uptime).Before(w.NextCheckpoint) { // else the checkpoint comes first, and asks again
		w.timer(&w.tasks.uptime, &w.events.uptime, timerOptions{limit - uptime, "rotation.max_uptime"})
	}
}
