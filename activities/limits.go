package activities

import (
	"context"
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// ApplyLimits sets new memory and CPU limits on a running process and returns the mechanism that enforces each limit.
// It fails with api.CodeInvalid if this host cannot enforce them, and with api.CodeUnavailable if the process has ended
// or is unknown; Temporal retries neither.
func (h *Host) ApplyLimits(_ context.Context, r api.ApplyLimitsRequest) (api.ApplyLimitsResult, error) {
	var none api.ApplyLimitsResult
	if r.MemoryBytes < 0 || r.CPUCores < 0 {
		return none, nonRetryable(api.CodeInvalid,
			fmt.Sprintf("limits of %s are negative: %d bytes, %v cores; use 0 to leave one unchanged", r.Worker, r.MemoryBytes,
				r.CPUCores))
	}
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return none, nonRetryable(api.CodeUnavailable, unknownProcess)
	}
	limits := p.Limits()
	if r.MemoryBytes > 0 {
		limits.Memory = spec.Bytes(r.MemoryBytes)
	}
	if r.CPUCores > 0 {
		limits.CPU = r.CPUCores
	}
	mechanisms, err := p.ApplyLimits(limits)
	if err != nil {
		return none, fromProcess(err)
	}
	h.Logger.Info("limits applied", "worker", r.Worker, "incarnation", r.Incarnation, "memory", limits.Memory,
		"cpu", limits.CPU, "reason", r.Reason)
	return api.ApplyLimitsResult{Limits: mechanisms}, nil
}
