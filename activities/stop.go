package activities

import (
	"context"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// Stop ends a process and its tree. One that this host does not know, or that has ended, is no error.
func (h *Host) Stop(ctx context.Context, r api.StopRequest) (api.StopResult, error) {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		const reason = "the host did not know the process any more: its agent was restarted, and its tree was taken down then"
		return api.StopResult{Exit: lifecycle.Exit{Interrupted: true}, Reason: reason}, nil
	}
	h.observer().Stopping(r.Process)
	exit, err := p.Stop(ctx, r.Grace.D())
	if err != nil {
		return api.StopResult{}, fromProcess(err)
	}
	return api.StopResult{Exit: toExit(exit), Reason: exit.Reason, Usage: h.finalUsage(p)}, nil
}
