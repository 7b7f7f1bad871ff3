// Package codemetrics is the job of the example pool: it measures Python files on the workers of a pool, each batch by a call under a lease,
// and counts each file exactly once, whatever happens to the workers.
package codemetrics

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

var errStalled = errors.New("stalled")

// Run measures all files and returns their sum. It retries calls that fail because of a dead worker, an ended lease or a lost gateway, counts a
// batch only when its whole answer has arrived, and leaves no lease behind. Run fails when one file fails MaxAttempts calls, which the error
// names, when no batch is finished for StallTimeout, when the pool does not exist, and when ctx ends; the Summary then has what was counted.
func Run(ctx context.Context, config Config) (Summary, error) {
	config = config.withDefaults()
	began := time.Now()
	batches := pack(config.Files, config.BatchFiles, batchBytes)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	j := &job{
		config: config, pool: config.Client.Pool(config.Pool), stop: stop,
		stall: time.AfterFunc(config.StallTimeout, func() { stop(errStalled) }), totals: newTotals(),
	}
	defer j.stall.Stop()
	for _, b := range batches {
		j.total += len(b.paths)
	}
	j.queue = newQueue(batches, j.total)
	if config.Concurrency == 0 && len(batches) > 0 {
		status, err := j.pool.Status(ctx)
		if err != nil {
			return Summary{}, err
		}
		config.Concurrency = status.Size
	}
	var workers sync.WaitGroup
	for range min(config.Concurrency, len(batches)) {
		workers.Go(func() { j.work(ctx) })
	}
	workers.Wait()
	summary := j.totals.total()
	summary.Took = time.Since(began)
	cause := context.Cause(ctx)
	switch {
	case j.queue.done():
		return summary, nil
	case errors.Is(cause, errStalled):
		return summary, api.Errorf(api.CodeQueueTimeout, "no file was measured for %s; see ctl ps %s: %w", config.StallTimeout, config.Pool, cmp.Or(j.lastFailure, error(api.ErrNoWorkers)))
	}
	return summary, cause
}
