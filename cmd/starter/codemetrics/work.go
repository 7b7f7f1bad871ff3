package codemetrics

import (
	"context"
	"fmt"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	leaseTTL = time.Minute
	// checkinTimeout bounds a checkin. The end of the job does not cut it short, since a lease left behind blocks its worker until it expires.
	checkinTimeout = 15 * time.Second
	// leasePause separates two leases, so that a repeated failure does not become a busy loop.
	leasePause = 50 * time.Millisecond
)

// work measures batches under one lease after another until ctx ends.
func (j *job) work(ctx context.Context) {
	for ctx.Err() == nil {
		j.useLease(ctx)
		sleep.For(ctx.Done(), leasePause)
	}
}

// useLease checks out a lease, measures batches while the lease is good, and checks it in.
func (j *job) useLease(ctx context.Context) {
	ctx, stopRenewal := context.WithCancel(ctx)
	defer stopRenewal()
	lease, err := j.pool.Checkout(ctx, tempool.CheckoutOptions{Holder: j.config.Holder, TTL: leaseTTL})
	if err != nil {
		if code := api.CodeOf(err); code == api.CodePoolNotFound || code == api.CodeInvalid {
			j.stop(err)
		}
		j.recordFailure(err)
		return
	}
	j.recordLease()
	action, outcome := j.measureBatches(ctx, lease)
	if action == dropLease {
		return
	}
	checkin, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkinTimeout)
	defer cancel()
	if err := lease.Checkin(checkin, outcome); err != nil {
		j.recordFailure(err) // the lease expires; its results count
	}
}

// measureBatches measures batches until all are done or the lease is to end, and returns what to do with the lease.
func (j *job) measureBatches(ctx context.Context, lease *tempool.Lease) (leaseAction, api.Outcome) {
	for {
		b, ok := j.queue.take(ctx)
		if !ok {
			return returnLease, api.OutcomeOK
		}
		err := j.measure(ctx, lease, b)
		if err == nil {
			if j.queue.finish(); j.queue.done() {
				j.stop(nil)
			}
			continue
		}
		if ctx.Err() != nil { // the job cancelled the call
			j.queue.putBack(b)
			return returnLease, api.OutcomeOK
		}
		switch action := j.retry(b, err); action {
		case keepLease:
		case replaceWorker:
			return action, api.OutcomeClose
		default:
			return action, api.OutcomeOK
		}
	}
}

func (j *job) measure(ctx context.Context, lease *tempool.Lease, b batch) error {
	var measures []FileMeasure
	params := map[string]any{"paths": b.paths, "top": topFunctions}
	if err := lease.With(tempool.CallOptions{Timeout: callTimeout}).Call(ctx, method, params, &measures); err != nil {
		return err
	}
	return j.recordAnswer(b, measures)
}

// retry puts the batch of a failed call back into the queue, or fails the job, and returns what to do with the lease. It fails the job before
// the batch is back, since another worker would take it.
func (j *job) retry(b batch, err error) leaseAction {
	f := classify(err)
	j.recordRetry(err)
	switch {
	case f.permanent:
		j.stop(err)
		j.queue.putBack(b)
	case !f.started:
		j.queue.putBack(b)
	case len(b.paths) > 1:
		j.queue.putBack(b.halves()...)
	default:
		b.failures++
		if b.failures >= j.config.MaxAttempts {
			j.stop(fmt.Errorf("cannot measure %s (%d failed calls); fix the file or leave it out: %w", b.paths[0], b.failures, err))
		}
		j.queue.putBack(b)
	}
	return f.action
}
