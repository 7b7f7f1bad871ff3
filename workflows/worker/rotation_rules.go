package worker

import (
	"math/rand/v2"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// watchRules are the rules for this incarnation; those for causes that were only to be observed, and have been, are
// off. While a rotation is wanted they stay as they are: the worker ignores what they find.
func (r rotator) watchRules() api.WatchRules {
	switch {
	case r.Machine.State == lifecycle.Suspended:
		return api.WatchRules{}
	case r.Rotation != nil:
		return r.Observing.Rules
	}
	rules := r.Process.Rules
	if slices.Contains(r.Process.ObservedCauses, api.CauseGrade) {
		rules.Grade = false
	}
	if slices.Contains(r.Process.ObservedCauses, api.CausePrediction) {
		rules.Window, rules.Horizon, rules.MemoryLimitBytes = 0, 0, 0
	}
	return rules
}

// rulesOfNext are the rules for the next incarnation, with a request limit drawn for it.
func (r rotator) rulesOfNext(sp spec.Spec) api.WatchRules {
	random := rand.New(workflow.GetRandomStream(r.Ctx, "rotation")).Float64()
	grade := r.GradeRotations
	if r.Rotation != nil && r.Rotation.Cause == api.CauseGrade { // it counts with the switch to the successor
		grade++
	} else if r.Rotation != nil {
		grade = 0
	}
	rules := api.WatchRules{
		Limits: true, RequestLimit: policy.RequestLimit(sp.Rotation, random),
		MaxMemoryBytes: max(0, int64(sp.Rotation.MaxMemory)), AutoMemory: sp.Rotation.MaxMemory == spec.Auto,
		Grade: true, GradeAfter: spec.Duration(policy.GradeGracePeriod(grade)),
	}
	if sp.Prediction.Enabled {
		rules.Window, rules.Horizon, rules.MemoryLimitBytes = sp.Prediction.Window, sp.Prediction.Horizon, int64(
			sp.Limits.Memory)
	}
	return rules
}

// checkRequestLimit rotates an incarnation whose checkins show that it has served its number of requests. The host sees
// that sooner if calls go through the gateway.
func (r rotator) checkRequestLimit() {
	if reason := policy.RotateForRequests(r.Process.Reported.Requests, r.Process.Rules.RequestLimit); reason != "" {
		r.want(api.CauseRequests, reason)
	}
}

// ensureUptimeTimer runs the timer that rotates an incarnation at rotation.max_uptime, or rotates it if the time is
// over.
func (r rotator) ensureUptimeTimer() {
	limit := r.Spec.Rotation.MaxUptime.D()
	if limit <= 0 || r.Rotation != nil || r.Machine.StartedAt.IsZero() {
		return
	}
	uptime := r.Now().Sub(r.Machine.StartedAt)
	if reason := policy.RotateForUptime(uptime, limit); reason != "" {
		r.tasks.uptime.Cancel()
		r.want(api.CauseUptime, reason)
		return
	}
	// otherwise the checkpoint comes first, and calls this
	if !r.tasks.uptime.Running() && r.Now().Add(limit-uptime).Before(r.NextCheckpoint) {
		r.tasks.uptime.Start(r.Loop, limit-uptime, "rotation.max_uptime")
	}
}
