package worker

import (
	"math/rand/v2"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/policy/fromspec"
	"github.com/tempool/tempool/spec"
)

// watchRules are the limits that the host checks this incarnation against; none while a rotation is wanted.
func (r rotator) watchRules() api.WatchRules {
	if r.Rotation != nil || r.Machine.State == lifecycle.Suspended {
		return api.WatchRules{}
	}
	limit := int64(r.Spec.Rotation.MaxMemory)
	rules := api.WatchRules{
		Limits:       true,
		RequestLimit: r.Process.RequestLimit, MaxMemoryBytes: limit,
		Grade: !slices.Contains(r.Process.ObservedCauses, api.CauseGrade), GradeAfter: spec.Duration(policy.GradeGracePeriod(r.GradeRotations)),
	}
	if r.Process.InitialBytes >= limit { // the next process would start as large
		rules.MaxMemoryBytes = 0
	}
	if r.Spec.Prediction.Enabled && !slices.Contains(r.Process.ObservedCauses, api.CausePrediction) {
		rules.Window, rules.Horizon, rules.MemoryLimitBytes = r.Spec.Prediction.Window, r.Spec.Prediction.Horizon, limit
		if hard := int64(r.Spec.Limits.Memory); hard > 0 && (limit == 0 || hard < limit) {
			rules.MemoryLimitBytes = hard
		}
	}
	return rules
}

// drawRequestLimit draws the request limit of an incarnation that has become ready, and records its initial memory.
func (r rotator) drawRequestLimit() {
	random := rand.New(workflow.GetRandomStream(r.Ctx, "rotation")).Float64()
	r.Process.RequestLimit = fromspec.Rotation(r.Spec).RequestLimit(random)
	if r.Sample != nil {
		r.Process.InitialBytes = r.Sample.RSSBytes
	}
	if limit := int64(r.Spec.Rotation.MaxMemory); limit > 0 && r.Process.InitialBytes >= limit {
		workflow.GetLogger(r.Ctx).Warn("process exceeds rotation.max_memory from its start, so the limit is ignored; raise it",
			"worker", r.name(), "bytes", r.Process.InitialBytes, "max_memory", r.Spec.Rotation.MaxMemory)
	}
}

// checkRequestLimit rotates an incarnation whose checkins show that it has served its number of requests. Watch sees that sooner if
// calls go through the gateway.
func (r rotator) checkRequestLimit() {
	if limit := r.Process.RequestLimit; limit > 0 && r.Process.Requests >= limit {
		r.want(api.CauseRequests, policy.Rotation{MaxRequests: limit}.Next(policy.Life{Requests: r.Process.Requests}, 0).Reason)
	}
}

// ensureUptimeTimer runs the timer that rotates an incarnation at rotation.max_uptime, or rotates it if the time is over.
func (r rotator) ensureUptimeTimer() {
	limit := r.Spec.Rotation.MaxUptime.D()
	if limit <= 0 || r.Rotation != nil || r.Machine.StartedAt.IsZero() {
		return
	}
	uptime := r.Now().Sub(r.Machine.StartedAt)
	if uptime >= limit {
		r.tasks.uptime.Cancel()
		r.want(api.CauseUptime, policy.Rotation{MaxUptime: limit}.Next(policy.Life{Uptime: uptime}, 0).Reason)
		return
	}
	if !r.tasks.uptime.Running() && r.Now().Add(limit-uptime).Before(r.NextCheckpoint) { // otherwise the checkpoint comes first, and calls this
		r.tasks.uptime.Start(r.Loop, limit-uptime, "rotation.max_uptime")
	}
}
