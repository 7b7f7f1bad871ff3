package activities

import (
	"context"
	"errors"

	"github.com/tempool/tempool/api"
	"go.temporal.io/sdk/temporal"
)

// CollectGarbage has a worker give back what memory it can, and says what its tree used before and after. It fails as invalid for a
// worker that cannot be asked, as unavailable when the process has ended or is not known here, and as deadline_exceeded when it does
// not answer in time; none is retried.
func (h *Host) CollectGarbage(ctx context.Context, r api.CollectGarbageRequest) (api.CollectGarbageResult, error) {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.CollectGarbageResult{}, temporal.NewNonRetryableApplicationError(unknownProcess, string(api.CodeUnavailable), nil)
	}
	if limit := r.Timeout.D(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	before := p.LatestSample().RSSBytes
	if err := p.CollectGarbage(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return api.CollectGarbageResult{}, temporal.NewNonRetryableApplicationError(err.Error(), string(api.CodeDeadlineExceeded), nil)
		}
		return api.CollectGarbageResult{}, fromProcess(err)
	}
	result := api.CollectGarbageResult{BeforeBytes: before}
	if sample, err := p.FreshSample(ctx); err == nil { // else the process is ending, and its exit says more
		result.AfterBytes = sample.RSSBytes
	}
	return result, nil
}
