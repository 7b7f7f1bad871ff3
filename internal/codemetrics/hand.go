package codemetrics

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

const (
	// requestTimeout bounds one checkout, renewal or checkin. They are not cut short by the job's end: a lease that was granted to
	// nobody would keep a worker out of service until it expires.
	requestTimeout = 15 * time.Second
	// pauseAfterBreak keeps a hand that meets the same trouble again and again from asking all the time.
	pauseAfterBreak  = 50 * time.Millisecond
	maxCheckoutPause = 500 * time.Millisecond
)

// leases is what the job asks of a pool.
type leases interface {
	size(ctx context.Context) (int, error)
	tryCheckout(ctx context.Context) (*tempool.Lease, error)
	renew(ctx context.Context, id string) (*tempool.Lease, error)
	checkin(ctx context.Context, request api.CheckinRequest) error
}

type poolLeases struct {
	client *tempool.Client
	pool   *tempool.Pool
	holder string
	ttl    time.Duration
}

func (p *poolLeases) size(ctx context.Context) (int, error) {
	status, err := p.pool.Status(ctx)
	return status.Size, err
}

func (p *poolLeases) tryCheckout(ctx context.Context) (*tempool.Lease, error) {
	return p.pool.TryCheckout(ctx, tempool.CheckoutOptions{Holder: p.holder, TTL: p.ttl})
}

func (p *poolLeases) renew(ctx context.Context, id string) (*tempool.Lease, error) {
	return p.client.Renew(ctx, id, p.ttl)
}

func (p *poolLeases) checkin(ctx context.Context, request api.CheckinRequest) error {
	return p.client.Checkin(ctx, request)
}

// request bounds an exchange with the control plane that must not be cut short.
func request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
}

// hand does batches, under one lease after another, until all are done or the job fails.
func (j *job) hand(ctx context.Context) {
	for {
		lease := j.checkout(ctx)
		if lease == nil {
			return
		}
		j.hold(1)
		back := j.work(ctx, lease)
		j.hold(-1)
		if back != nil {
			j.giveBack(ctx, *back)
		}
		j.pause(ctx, pauseAfterBreak)
	}
}

// checkout waits for a lease; nil means that the job is over.
func (j *job) checkout(ctx context.Context) *tempool.Lease {
	for pause := pauseAfterBreak; !j.over(ctx); pause = min(2*pause, maxCheckoutPause) {
		asking, cancel := request(ctx)
		lease, err := j.leases.tryCheckout(asking)
		cancel()
		if err == nil {
			return lease
		}
		if code := api.CodeOf(err); code == api.CodePoolNotFound || code == api.CodeInvalid {
			j.fail(err)
			return nil
		}
		j.note(err)
		j.pause(ctx, pause/2+rand.N(pause))
	}
	return nil
}

func (j *job) over(ctx context.Context) bool {
	select {
	case <-j.queue.done:
		return true
	default:
		return ctx.Err() != nil
	}
}

func (j *job) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-j.queue.done:
	case <-ctx.Done():
	}
}

// work does batches under a lease for as long as there are any and the lease holds. It returns how to give the lease back, or nil
// where it is lost.
func (j *job) work(ctx context.Context, lease *tempool.Lease) *api.CheckinRequest {
	back := &api.CheckinRequest{LeaseID: lease.ID, Outcome: api.OutcomeOK}
	for {
		b, more := j.queue.take(ctx)
		if !more {
			return back
		}
		var err error
		if lease, err = j.keep(ctx, lease); err == nil {
			began := time.Now()
			err = j.measure(ctx, lease, b)
			back.Usage.Requests++
			back.Usage.TotalMS += time.Since(began).Milliseconds()
			if err != nil {
				back.Usage.Failed++
			}
		}
		if err == nil {
			j.queue.finish()
			continue
		}
		if ctx.Err() != nil { // the call was cut short from here; the worker gave it up
			j.queue.giveBack(b)
			return back
		}
		switch fate := j.broken(b, err); fate {
		case keepLease:
		case returnLease:
			return back
		case replaceWorker:
			back.Outcome, back.Error = api.OutcomeClose, err.Error()
			return back
		default:
			return nil
		}
	}
}

// keep renews a lease that may not last for another call.
func (j *job) keep(ctx context.Context, lease *tempool.Lease) (*tempool.Lease, error) {
	if time.Until(lease.ExpiresAt) > j.config.TTL/2 {
		return lease, nil
	}
	asking, cancel := request(ctx)
	defer cancel()
	renewed, err := j.leases.renew(asking, lease.ID)
	if err != nil {
		return lease, err
	}
	return renewed, nil
}

func (j *job) measure(ctx context.Context, lease *tempool.Lease, b batch) error {
	var measures []FileMeasure
	params := map[string]any{"paths": b.paths, "top": j.config.Top}
	if err := lease.With(tempool.CallOptions{Timeout: j.config.CallTimeout}).Call(ctx, j.config.Method, params, &measures); err != nil {
		return err
	}
	return j.count(b, measures)
}

// broken puts a batch whose call broke off back into the queue, or fails the job, and says what becomes of the lease.
func (j *job) broken(b batch, err error) leaseFate {
	v := judge(err)
	j.mu.Lock()
	j.trouble = err
	j.tally.summary.Repeated++
	j.tell()
	j.mu.Unlock()
	// A job that fails does so before the batch is back in the queue, where another hand would take it up once more.
	switch {
	case v.hopeless:
		j.fail(err)
		j.queue.giveBack(b)
	case !v.begun:
		j.queue.giveBack(b)
	case len(b.paths) > 1:
		j.queue.giveBack(b.halves()...)
	default:
		b.failures++
		if b.failures >= j.config.MaxAttempts {
			j.fail(tooOften(b, err))
		}
		j.queue.giveBack(b)
	}
	return v.lease
}

func (j *job) giveBack(ctx context.Context, back api.CheckinRequest) {
	asking, cancel := request(ctx)
	defer cancel()
	if err := j.leases.checkin(asking, back); err != nil {
		j.note(err) // the lease ends by itself; the results under it stand
	}
}
