package activities

import (
	"context"

	"github.com/tempool/tempool/api"
)

// Recall asks the gateway to give back a lease that it holds and does not use.
func (h *Host) Recall(ctx context.Context, r api.RecallRequest) (api.RecallResult, error) {
	return h.DataPlane.Recall(ctx, r.Worker, r.Incarnation, r.LeaseID), nil
}

// Reset has a worker forget what the holder of an expired lease left behind. That it does not is no error, but a problem.
func (h *Host) Reset(ctx context.Context, r api.ResetRequest) (api.ResetResult, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout.D())
	defer cancel()
	h.observer().Decided(r.Worker, ResetWorker)
	h.Logger.Info("a worker is reset, since a lease has expired", "worker", r.Worker, "incarnation", r.Incarnation, "lease", r.LeaseID)
	usage, err := h.DataPlane.Reset(ctx, r.Worker, r.Incarnation, r.LeaseID)
	result := api.ResetResult{Usage: usage}
	if err != nil {
		result.Problem = err.Error()
		h.Logger.Warn("a worker was not reset after a lease had expired", "worker", r.Worker, "incarnation", r.Incarnation, "lease", r.LeaseID, "error", err)
	}
	return result, nil
}
