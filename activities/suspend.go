package activities

import (
	"context"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Suspend takes a process out of service and keeps it, frozen if its spec says so; see api.SuspendRequest. A process
// that this host does not know is idle.
func (h *Host) Suspend(ctx context.Context, r api.SuspendRequest) (api.SuspendResult, error) {
	return order(ctx, h, func(ctx context.Context) (api.SuspendResult, error) {
		result := h.DataPlane.Suspend(ctx, r)
		p, known := h.Processes.Get(r.Worker, r.Incarnation)
		if result.Withdrawn || ctx.Err() != nil || !known || p.HasEnded() || p.Spec().Pool.OnSuspend != spec.SuspendFreeze {
			return result, nil
		}
		if err := p.Freeze(r.Generation); err != nil {
			h.Logger.Warn("process tree not frozen", "worker", r.Worker, "incarnation", r.Incarnation, "error", err)
			result.Problem = joined(result.Problem, err.Error())
		}
		result.Frozen = p.Frozen()
		return result, nil
	})
}

// EndSuspension returns a suspended process to service; see api.ResumeRequest.
func (h *Host) EndSuspension(ctx context.Context, r api.ResumeRequest) (api.ResumeResult, error) {
	return order(ctx, h, func(ctx context.Context) (api.ResumeResult, error) {
		if p, known := h.Processes.Get(r.Worker, r.Incarnation); known && !p.HasEnded() {
			p.Thaw(r.Generation)
		}
		return h.DataPlane.EndSuspension(ctx, r), nil
	})
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
