package activities

import (
	"context"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
)

// Watch sets what this host observes of an incarnation from now on. It returns at once: with WatchUnknown or
// WatchExited if there is no process to observe, else with no event. It reports what it observes with Notify.
func (h *Host) Watch(ctx context.Context, r api.WatchRequest) (api.WatchResult, error) {
	return order(ctx, h, func(context.Context) (api.WatchResult, error) { return h.watch(r), nil })
}

func (h *Host) watch(r api.WatchRequest) api.WatchResult {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.WatchResult{Event: api.WatchUnknown, Reason: unknownProcess, Exit: &lifecycle.Exit{Error: unknownProcess}}
	}
	if p.HasEnded() {
		return h.exited(p)
	}
	h.Observer.Watching(r)
	problem := ""
	if r.Failures > 0 {
		problem = "its worker is degraded until it passes a health check"
	}
	h.DataPlane.Claim(r.Worker, r.Incarnation)
	h.DataPlane.SetHealth(r.Worker, r.Incarnation, problem)
	h.monitors.set(p, r)
	return api.WatchResult{}
}

// exited is the observation of a process that has ended.
func (h *Host) exited(p *process.Process) api.WatchResult {
	exit := p.Exit()
	return api.WatchResult{Event: api.WatchExited, Reason: exit.Reason, Exit: &exit.Exit,
		Sample: toSample(p.LatestSample()), Usage: h.finalUsage(p)}
}
