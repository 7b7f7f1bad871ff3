package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// How often workers are asked that may not be free. A refusal costs no history, but work in Temporal.
const (
	// checkoutPace is the time between two such attempts of one pool on one host, on average, and maxPace the longest
	// pause after several refusals at once.
	checkoutPace = 50 * time.Millisecond
	maxPace      = time.Second
	// The time between two attempts on one worker begins with checkoutBackoff and doubles to a maximum that grows with the
	// size of the pool, so that all gateways together make few attempts, however many hosts the pool has.
	checkoutBackoff        = 20 * time.Millisecond
	checkoutBackoffEach    = 40 * time.Millisecond // of the maximum, for each worker of the pool
	checkoutLeastMaximum   = time.Second
	checkoutLargestMaximum = 4 * time.Second
	// maxRetryAfter bounds the retry delay that a refusal asks for: a worker that starts may be ready long before.
	maxRetryAfter = 100 * time.Millisecond
	// elsewherePace is the time between two attempts on workers of other hosts, whose own gateways serve the clients
	// there.
	elsewherePace = 500 * time.Millisecond
	// elsewhereFresh is how long the roster of other hosts' workers is cached.
	elsewhereFresh = 2 * time.Second
	// pinLimit is how long a client asks no other worker after one has not answered: for three attempts.
	pinLimit = 3 * controlTimeout
)

// refusedLocked decides when to ask a worker again that did not grant a lease.
func (p *poolState) refusedLocked(u *upstream, err error, now time.Time) {
	largest := min(max(time.Duration(p.specLocked().Pool.Size)*checkoutBackoffEach, checkoutLeastMaximum),
		checkoutLargestMaximum)
	pause := checkoutBackoff << min(u.refusals, 10)
	if coded, ok := errors.AsType[*api.Error](err); ok {
		pause = max(pause, min(coded.RetryAfter, maxRetryAfter))
		if coded.Code != api.CodeUnavailable {
			u.stats.refused.Add(1)
		}
		if coded.Code == api.CodeSuspended { // by an order that this agent has not seen
			// its hint is for checkouts, of any worker
			p.refuseQueuedLocked(u.worker, &api.Error{Code: coded.Code, Message: coded.Message})
		}
	}
	u.refusals++
	u.retryAt = now.Add(min(pause, largest))
	p.slowDownLocked(now)
}

// slowDownLocked moves the next attempt on a worker that may not be free.
func (p *poolState) slowDownLocked(now time.Time) {
	if p.pace.Before(now) {
		p.pace = now
	}
	if next := p.pace.Add(checkoutPace); next.Sub(now) <= maxPace {
		p.pace = next
	}
}

// returnedLocked records that the worker's lease has been returned: the next checkout should succeed.
func (u *upstream) returnedLocked() {
	u.free, u.refusals, u.retryAt = true, 0, time.Time{}
}

// specLocked is the newest spec seen of the pool, else the default one.
func (p *poolState) specLocked() spec.Spec {
	if p.specKnown {
		return p.spec
	}
	return spec.Default()
}

// workersElsewhere are the pool's workers on other hosts, as the roster shows them.
type workersElsewhere struct {
	asking  bool
	askAt   time.Time
	readAt  time.Time
	workers []string
	turn    int
}

// leaseElsewhereLocked asks a worker of another host for the first client that may be served there, in the background
// and seldom. The client may be served here while the roster is read.
func (p *poolState) leaseElsewhereLocked(now time.Time) {
	e := &p.clients.elsewhere
	if e.asking || now.Before(e.askAt) || p.checkouts >= maxCheckouts {
		return
	}
	w := p.firstElsewhereLocked()
	if w == nil {
		return
	}
	worker := w.worker
	if worker == "" {
		if now.Sub(e.readAt) >= elsewhereFresh {
			p.readElsewhereLocked(w)
			return
		}
		worker = e.next()
	}
	if worker == "" {
		return
	}
	w.unsure = w.worker == ""
	e.asking, w.trying = true, true
	p.checkoutLocked(worker, w.options, nil, func(lease *api.Lease, err error, sent, now time.Time) {
		e.asking = false
		switch {
		case err == nil:
			e.askAt = time.Time{}
		case len(p.order) == 0:
			e.askAt = now.Add(checkoutPace)
		default:
			e.askAt = now.Add(elsewherePace)
		}
		p.answerLocked(w, worker, lease, sent, err)
	})
}

// firstElsewhereLocked is the client whose turn it is to ask another host, nil if there is none.
func (p *poolState) firstElsewhereLocked() *waitingClient {
	first := p.clients.first()
	for _, w := range p.clients.waiting {
		if !w.trying && (w == first || w.worker != "" && p.newestLiveLocked(w.worker) == nil) {
			return w
		}
	}
	return nil
}

// readElsewhereLocked reads the roster in the background, for the client.
func (p *poolState) readElsewhereLocked(w *waitingClient) {
	e := &p.clients.elsewhere
	e.asking = true
	p.dispatcher.work.Go(func() {
		workers, err := p.workersElsewhere()
		if err == nil && len(workers) == 0 {
			err = api.Errorf(api.CodeNoWorkers, "no worker of pool %s is in service on another host", p.pool)
		}
		now := time.Now()
		p.mu.Lock()
		defer p.mu.Unlock()
		defer p.notify()
		e.asking, e.readAt, e.workers = false, now, workers
		if err != nil {
			e.askAt = now.Add(elsewhereFresh)
			p.refuseWaitingLocked(w, err)
			return
		}
		p.leaseElsewhereLocked(now) // while the roster is fresh
	})
}

// workersElsewhere are the pool's workers in service on other hosts.
func (p *poolState) workersElsewhere() (workers []string, err error) {
	ctx, cancel := context.WithTimeout(p.dispatcher.life, controlTimeout)
	defer cancel()
	status, err := p.dispatcher.config.Control.Status(ctx, p.pool)
	if err != nil {
		return nil, err
	}
	for _, e := range status.Workers {
		if !e.Gone && !e.Removing && e.Host != p.dispatcher.config.HostID &&
			(e.State == lifecycle.Ready || e.State == lifecycle.Busy) {
			workers = append(workers, api.WorkerName(p.pool, e.Slot))
		}
	}
	return workers, nil
}

// next is the worker of another host whose turn it is to be asked, "" for none.
func (e *workersElsewhere) next() string {
	if len(e.workers) == 0 {
		return ""
	}
	e.turn++
	return e.workers[e.turn%len(e.workers)]
}
