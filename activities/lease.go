package activities

import (
	"context"

	"github.com/tempool/tempool/api"
)

// Reset makes a worker discard the state that the holder of an expired lease left. A failed reset is not an error:
// ResetResult.Problem holds the reason.
func (h *Host) Reset(ctx context.Context, r api.ResetRequest) (api.ResetResult, error) {
	return order(ctx, h, func(ctx context.Context) (api.ResetResult, error) { return h.reset(ctx, r), nil })
}

func (h *Host) reset(ctx context.Context, r api.ResetRequest) api.ResetResult {
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
}
