package codemetrics

import (
	"context"
	"sync"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// job is the shared state of one run.
type job struct {
	config   Config
	pool     *tempool.Pool
	queue    *queue
	stop     context.CancelCauseFunc // ends the run; the first cause counts
	progress chan struct{}           // receives a token when a batch is done

	mu          sync.Mutex
	tally       *tally
	leases      int // held now
	total       int // files
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
	j.tally.summary.Retried++
	j.reportLocked()
}

// recordAnswer adds the answer to a batch to the sum.
func (j *job) recordAnswer(b batch, measures []FileMeasure) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.tally.add(b, measures); err != nil {
		failure := api.Errorf(api.CodeWorkerError, "%w", err)
		failure.Started = true
		return failure
	}
	j.reportLocked()
	select {
	case j.progress <- struct{}{}:
	default: // an unread token says the same
	}
	return nil
}

func (j *job) recordLease() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.leases++
	j.tally.summary.Leases++
}

func (j *job) recordLeaseEnd() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.leases--
}

func (j *job) reportLocked() {
	if j.config.Progress == nil {
		return
	}
	s := j.tally.summary
	j.config.Progress(Progress{Files: s.Files, Total: j.total, Bytes: s.Bytes, Retried: s.Retried, Leases: j.leases})
}
