package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
)

// Watch observes an incarnation and returns at once when it ends, when a probe fails (or, for a degraded one, was made), or
// when the agent shuts down. It observes and never owns: that it ends changes nothing for the process, so that a new run of the
// workflow can watch the same one. Its heartbeats carry the newest sample.
func (h *Host) Watch(ctx context.Context, r api.WatchRequest) (api.WatchResult, error) {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.WatchResult{Event: api.WatchUnknown, Reason: unknownProcess, Exit: &lifecycle.Exit{Error: unknownProcess}}, nil
	}
	h.observer().Watching(r)
	probes := newProber(ctx, p, r, func(err error) { h.probed(r.Process, err) })
	defer probes.stop()
	beats := time.NewTicker(heartbeatInterval)
	defer beats.Stop()
	looks := time.NewTicker(checkInterval)
	defer looks.Stop()
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
			return api.WatchResult{Event: api.WatchShutdown, Reason: "the agent of host " + h.ID + " shuts down", Sample: toSample(p.LatestSample())}, nil
		case err := <-probes.failed:
			return api.WatchResult{Event: api.WatchProbeFailed, Reason: err.Error(), Sample: toSample(p.LatestSample())}, nil
		case <-probes.passed:
			return api.WatchResult{Event: api.WatchProbePassed, Sample: toSample(p.LatestSample())}, nil
		case <-looks.C:
			if cause, reason := h.check(ctx, p, r); cause != "" {
				h.Logger.Info("an incarnation should be replaced", "worker", p.Worker(), "incarnation", p.Incarnation(), "cause", cause, "reason", reason)
				return api.WatchResult{
					Event: api.WatchReplace, Cause: cause, Reason: reason, Sample: toSample(p.LatestSample()), Assessment: h.health.of(p).assessment(),
				}, nil
			}
		case <-beats.C:
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
		Sample: toSample(p.LatestSample()), Usage: usage, InFlight: inFlight, Assessment: h.health.of(p).assessment(),
		Limits: toMechanisms(p.LimitMeans()), MemoryLimitBytes: int64(limits.Memory), CPULimitCores: limits.CPU,
	})
}

// checkInterval is the rhythm in which a Watch holds an incarnation against its rules: between samples only its count of requests is new.
const checkInterval = time.Second

// check takes in what is new about an incarnation and says whether, and why, it should be replaced. While memory nears its limit
// faster than samples come, it takes some of its own.
func (h *Host) check(ctx context.Context, p *process.Process, r api.WatchRequest) (api.Cause, string) {
	v := h.health.of(p)
	sample := p.LatestSample()
	if v.needsSample(r.Rules) && time.Since(sample.At) >= checkInterval {
		if fresh, err := p.Sample(ctx); err == nil { // else the process is ending, and its exit says more
			sample = fresh
		}
	}
	requests := h.requestCount(p)
	v.add(sample, requests, r.Health)
	if excess := p.Excess(); r.Rules.Limits && excess.Limit != "" {
		return api.CauseLimits, "Replacing the worker: " + excess.Reason + "."
	}
	return v.replacement(r.Rules, requests, time.Since(p.Info().ReadyAt))
}
