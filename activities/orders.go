package activities

import (
	"context"
	"math"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// Suspend takes a process out of service and keeps it, frozen if its spec says so; see api.SuspendRequest. A process
// that this host does not know is idle.
func (h *Host) Suspend(ctx context.Context, r api.SuspendRequest) (api.SuspendResult, error) {
	return order(ctx, h, func(ctx context.Context) api.SuspendResult {
		result := h.DataPlane.Suspend(ctx, r)
		p, known := h.Processes.Get(r.Worker, r.Incarnation)
		if result.Withdrawn || ctx.Err() != nil || !known || p.HasEnded() || p.Spec().Pool.OnSuspend != spec.SuspendFreeze {
			return result
		}
		if err := p.Freeze(r.Generation); err != nil {
			h.Logger.Warn("process tree not frozen", "worker", r.Worker, "incarnation", r.Incarnation, "error", err)
			result.Problem = joined(result.Problem, err.Error())
		}
		result.Frozen = p.Frozen()
		return result
	})
}

// EndSuspension returns a suspended process to service; see api.ResumeRequest.
func (h *Host) EndSuspension(ctx context.Context, r api.ResumeRequest) (api.ResumeResult, error) {
	return order(ctx, h, func(ctx context.Context) api.ResumeResult {
		if p, known := h.Processes.Get(r.Worker, r.Incarnation); known && !p.HasEnded() {
			p.Thaw(r.Generation)
		}
		return h.DataPlane.EndSuspension(ctx, r)
	})
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// Drain stops new calls to a process and waits until none is in flight and the sessions bound to the worker are
// released, at most r.Timeout.
func (h *Host) Drain(ctx context.Context, r api.DrainRequest) (api.DrainResult, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout.D())
	defer cancel()
	if p, known := h.Processes.Get(r.Worker, r.Incarnation); known {
		p.Thaw(math.MaxInt64) // for its hooks; it is about to stop, and no Freeze that comes late counts
	}
	return h.DataPlane.Drain(ctx, r.Worker, r.Incarnation), nil
}

// Stop stops a process and its tree. A process that this host does not know, or that has ended, is not an error.
func (h *Host) Stop(ctx context.Context, r api.StopRequest) (api.StopResult, error) {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.StopResult{Exit: lifecycle.Exit{Interrupted: true}, Reason: unknownProcess}, nil
	}
	if p.HandedOver() { // it keeps running
		return api.StopResult{}, errResultPending
	}
	exit, err := p.Stop(ctx, r.Grace.D())
	if err != nil {
		return api.StopResult{}, fromProcess(err)
	}
	return api.StopResult{Exit: exit.Exit, Reason: exit.Reason, Usage: finalUsage(p)}, nil
}

// Reset makes a worker discard the state that the holder of an expired lease left. A failed reset is not an error:
// ResetResult.Problem holds the reason.
func (h *Host) Reset(ctx context.Context, r api.ResetRequest) (api.ResetResult, error) {
	return order(ctx, h, func(ctx context.Context) api.ResetResult {
		ctx, cancel := context.WithTimeout(ctx, r.Timeout.D())
		defer cancel()
		logger := h.Logger.With("worker", r.Worker, "incarnation", r.Incarnation, "lease", r.LeaseID)
		h.Observer.Decided(r.Worker, ResetWorker)
		logger.Info("resetting worker: lease expired")
		usage, err := h.DataPlane.Reset(ctx, r.Worker, r.Incarnation, r.LeaseID)
		result := api.ResetResult{Usage: usage}
		if err != nil {
			result.Problem = err.Error()
			logger.Warn("worker reset failed", "error", err)
		}
		return result
	})
}
