package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
)

// checkInterval is the time between two checks of an incarnation against its rules. Between samples only its request count changes.
const checkInterval = time.Second

// Watch observes an incarnation. It returns when the process exits, when a probe fails (or, for a degraded worker, passes), when the
// incarnation should be replaced, or when the agent shuts down. It does not own the process: after it returns, a new run of the
// workflow can watch the same process. Its heartbeats carry the newest sample.
func (h *Host) Watch(ctx context.Context, r api.WatchRequest) (api.WatchResult, error) {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.WatchResult{Event: api.WatchUnknown, Reason: unknownProcess, Exit: &lifecycle.Exit{Error: unknownProcess}}, nil
	}
	h.Observer.Watching(r)
	prober := startProber(ctx, p, r, func(err error) { h.Observer.Probed(r.Process, err) })
	defer prober.stop()
	heartbeats := time.NewTicker(heartbeatInterval)
	defer heartbeats.Stop()
	checks := time.NewTicker(checkInterval)
	defer checks.Stop()
	h.check(ctx, p, r)
	h.heartbeat(ctx, p)
	for {
		select {
		case <-p.Done():
			exit := toExit(p.Exit())
			return api.WatchResult{
				Event: api.WatchExited, Reason: p.Exit().Reason, Exit: &exit, Sample: toSample(p.LatestSample()), Usage: h.finalUsage(p),
			}, nil
		case <-h.Stopping:
			return api.WatchResult{Event: api.WatchShutdown, Reason: "the agent of host " + h.ID + " is shutting down", Sample: toSample(p.LatestSample())}, nil
		case err := <-prober.result:
			result := api.WatchResult{Event: api.WatchProbePassed, Sample: toSample(p.LatestSample())}
			if err != nil {
				result.Event, result.Reason = api.WatchProbeFailed, err.Error()
			}
			return result, nil
		case <-checks.C:
			if cause, reason := h.check(ctx, p, r); cause != "" {
				h.Logger.Info("incarnation should be replaced", "worker", p.Worker(), "incarnation", p.Incarnation(), "cause", cause, "reason", reason)
				return api.WatchResult{
					Event: api.WatchReplace, Cause: cause, Reason: reason, Sample: toSample(p.LatestSample()), Assessment: h.health.of(p).assessment(p.Spec().Rotation.MaxMemory),
				}, nil
			}
		case <-heartbeats.C:
			h.heartbeat(ctx, p)
		case <-ctx.Done():
			return api.WatchResult{}, ctx.Err()
		}
	}
}

func (h *Host) heartbeat(ctx context.Context, p *process.Process) {
	usage, inFlight := h.DataPlane.Usage(p.Worker(), p.Incarnation())
	limits := p.Limits()
	activity.RecordHeartbeat(ctx, api.WatchHeartbeat{
		Sample: toSample(p.LatestSample()), Usage: usage, InFlight: inFlight, Assessment: h.health.of(p).assessment(p.Spec().Rotation.MaxMemory),
		Limits: toMechanisms(p.LimitMechanisms()), MemoryLimitBytes: int64(limits.Memory), CPULimitCores: limits.CPU,
	})
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
	requests := h.requestCount(p)
	health.add(sample, requests, r.Health)
	if excess := p.Violation(); r.Rules.Limits && excess.Limit != "" {
		return api.CauseLimits, "Replacing the worker: " + excess.Reason + "."
	}
	age := time.Since(p.Info().ReadyAt)
	cause, reason := health.replacement(r.Rules, requests, age)
	if cause == "" || cause == api.CauseRequests || !health.isEstimated() {
		return cause, reason
	}
	if exact, err := p.FreshSample(ctx); err == nil {
		health.add(exact, requests, r.Health)
	}
	return health.replacement(r.Rules, requests, age)
}
