package codemetrics

import (
	"context"
	"sync"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// job is the shared state of one run.
type job struct {
	config Config
	pool   *tempool.Pool
	queue  *queue
	stop   context.CancelCauseFunc // ends the run; the first cause counts
	stall  *time.Timer             // stops a run without progress
	total  int                     // files

	mu          sync.Mutex
	totals      *totals
	lastFailure error
}

// recordFailure keeps the newest failure, for the error of a stalled job.
func (j *job) recordFailure(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lastFailure = err
}

// recordRetry is recordFailure for a call whose files will be sent again.
func (j *job) recordRetry(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lastFailure = err
	j.totals.summary.Retried++
	j.reportLocked()
}

// recordAnswer adds the answer to a batch to the sum.
func (j *job) recordAnswer(b batch, measures []FileMeasure) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.totals.add(b, measures); err != nil {
		failure := api.Errorf(api.CodeWorkerError, "%w", err)
		failure.Started = true
		return failure
	}
	j.stall.Reset(j.config.StallTimeout)
	j.reportLocked()
	return nil
}

func (j *job) recordLease() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.totals.summary.Leases++
}

func (j *job) reportLocked() {
	if j.config.Progress != nil {
		j.config.Progress(Progress{Files: j.totals.summary.Files, Total: j.total, Retried: j.totals.summary.Retried})
	}
}
