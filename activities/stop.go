package activities

import (
	"context"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// Stop stops a process and its tree. A process that this host does not know, or that has ended, is not an error.
func (h *Host) Stop(ctx context.Context, r api.StopRequest) (api.StopResult, error) {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.StopResult{Exit: lifecycle.Exit{Interrupted: true}, Reason: unknownProcess}, nil
	}
	if p.HandedOver() { // it keeps running
		return api.StopResult{}, errResultPending
	}
	h.Observer.Stopping(r.Process)
	exit, err := p.Stop(ctx, r.Grace.D())
	if err != nil {
		return api.StopResult{}, fromProcess(err)
	}
	return api.StopResult{Exit: exit.Exit, Reason: exit.Reason, Usage: h.finalUsage(p)}, nil
}
