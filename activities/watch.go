package activities

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
)

// checkInterval is the time between two checks of an incarnation against its rules. Between samples only its request count changes.
const checkInterval = time.Second

// Watch sets what this host observes of an incarnation from now on. It returns at once: with WatchUnknown or WatchExited if there is no
// process to observe, else with no event. It reports what it observes with Notify.
func (h *Host) Watch(ctx context.Context, r api.WatchRequest) (api.WatchResult, error) {
	return order(ctx, h, func(context.Context) (api.WatchResult, error) { return h.watch(r), nil })
}

func (h *Host) watch(r api.WatchRequest) api.WatchResult {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.WatchResult{Event: api.WatchUnknown, Reason: unknownProcess, Exit: &lifecycle.Exit{Error: unknownProcess}}
	}
	if hasEnded(p) {
		return h.exited(p)
	}
	h.Observer.Watching(r)
	h.monitors.set(p, r)
	return api.WatchResult{}
}

// exited is the observation of a process that has ended.
func (h *Host) exited(p *process.Process) api.WatchResult {
	exit := toExit(p.Exit())
	return api.WatchResult{Event: api.WatchExited, Reason: p.Exit().Reason, Exit: &exit, Sample: toSample(p.LatestSample()), Usage: h.finalUsage(p)}
}

// check adds the newest sample to the incarnation's health and returns why it should be replaced; no cause means that it should not.
// While memory approaches its limit faster than samples arrive, it takes a sample itself; and it measures memory that was estimated before
// that decides.
func (h *Host) check(ctx context.Context, p *process.Process, r api.WatchRequest) (api.Cause, string) {
	health := h.health.of(p)
	sample := p.LatestSample()
	if health.needsSample(r.Rules) && time.Since(sample.At) >= checkInterval {
		if fresh, err := p.Sample(ctx); err == nil { // on an error the process is ending
			sample = fresh
		}
	}
	done := h.served(p)
	h.sampled(p, sample, done, r.Health)
	if excess := p.Violation(); r.Rules.Limits && excess.Limit != "" {
		return api.CauseLimits, "Replacing the worker: " + excess.Reason + "."
	}
	age := time.Since(p.Info().ReadyAt)
	cause, reason := health.replacement(r.Rules, done.requests, age)
	if cause == "" || cause == api.CauseRequests || !health.isEstimated() {
		return cause, reason
	}
	if exact, err := p.FreshSample(ctx); err == nil {
		h.sampled(p, exact, done, r.Health)
	}
	return health.replacement(r.Rules, done.requests, age)
}
