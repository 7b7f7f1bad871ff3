package activities

import (
	"context"
	"errors"

	"github.com/tempool/tempool/api"
)

// CollectGarbage makes a worker free unused memory and returns the memory of its tree before and after. It fails with
// api.CodeInvalid if the worker's protocol has no such request, with api.CodeUnavailable if the process has ended or is
// unknown, and with api.CodeDeadlineExceeded if the worker does not answer in time; Temporal retries none.
func (h *Host) CollectGarbage(ctx context.Context, r api.CollectGarbageRequest) (api.CollectGarbageResult, error) {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.CollectGarbageResult{}, nonRetryable(api.CodeUnavailable, unknownProcess)
	}
	if timeout := r.Timeout.D(); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	result := api.CollectGarbageResult{BeforeBytes: p.LatestSample().MemoryBytes}
	if err := p.CollectGarbage(ctx); errors.Is(err, context.DeadlineExceeded) {
		return api.CollectGarbageResult{}, nonRetryable(api.CodeDeadlineExceeded, err.Error())
	} else if err != nil {
		return api.CollectGarbageResult{}, fromProcess(err)
	}
	if sample, err := p.FreshSample(ctx); err == nil { // on an error the process is ending
		result.AfterBytes = sample.MemoryBytes
	}
	return result, nil
}
