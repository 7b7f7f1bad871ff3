package activities

import (
	"context"
	"math"

	"github.com/tempool/tempool/api"
)

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
