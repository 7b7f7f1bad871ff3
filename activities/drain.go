package activities

import (
	"context"

	"github.com/tempool/tempool/api"
)

// Drain waits until no call is in flight on a process, at most the time it is given.
func (h *Host) Drain(ctx context.Context, r api.DrainRequest) (api.DrainResult, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout.D())
	defer cancel()
	return h.DataPlane.Drain(ctx, r.Worker, r.Incarnation), nil
}
