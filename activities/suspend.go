package activities

import (
	"context"

	"github.com/tempool/tempool/api"
)

// Suspend takes a process out of service and keeps it; see api.SuspendRequest. A process that this host does not know is idle.
func (h *Host) Suspend(ctx context.Context, r api.SuspendRequest) (api.SuspendResult, error) {
	return h.DataPlane.Suspend(ctx, r), nil
}

// EndSuspension returns a suspended process to service; see api.ResumeRequest.
func (h *Host) EndSuspension(_ context.Context, r api.ResumeRequest) (api.ResumeResult, error) {
	h.DataPlane.EndSuspension(r)
	return api.ResumeResult{}, nil
}
