package activities

import (
	"context"

	"github.com/tempool/tempool/api"
)

// Drain stops new calls to a process and waits until none is in flight, at most r.Timeout.
func (h *Host) Drain(ctx context.Context, r api.DrainRequest) (api.DrainResult, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout.D())
	defer cancel()
	return h.DataPlane.Drain(ctx, r.Worker, r.Incarnation), nil
}
