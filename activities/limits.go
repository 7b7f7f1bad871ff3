package activities

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// ApplyLimits gives a running process new limits of memory and CPU, and says by which means they are in force then. It fails as
// invalid where this host cannot hold them, and as unavailable when the process has ended or is not known here; neither is retried.
func (h *Host) ApplyLimits(_ context.Context, r api.ApplyLimitsRequest) (api.ApplyLimitsResult, error) {
	if r.MemoryBytes < 0 || r.CPUCores < 0 {
		return api.ApplyLimitsResult{}, temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("limits of %s cannot be negative: %d bytes, %v cores", r.Worker, r.MemoryBytes, r.CPUCores), string(api.CodeInvalid), nil)
	}
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.ApplyLimitsResult{}, temporal.NewNonRetryableApplicationError(unknownProcess, string(api.CodeUnavailable), nil)
	}
	limits := p.Limits()
	if r.MemoryBytes > 0 {
		limits.Memory = spec.Bytes(r.MemoryBytes)
	}
	if r.CPUCores > 0 {
		limits.CPU = r.CPUCores
	}
	by, err := p.ApplyLimits(limits)
	if err != nil {
		return api.ApplyLimitsResult{}, fromProcess(err)
	}
	h.Logger.Info("limits applied", "worker", r.Worker, "incarnation", r.Incarnation, "memory", limits.Memory, "cpu", limits.CPU, "reason", r.Reason)
	return api.ApplyLimitsResult{Limits: toMechanisms(by)}, nil
}
