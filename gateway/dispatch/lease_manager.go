package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// controlTimeout bounds one request about the Dispatcher's own leases.
	controlTimeout = 5 * time.Second
	// queueTick is the interval of ticks while calls are queued.
	queueTick = 20 * time.Millisecond
	// minTick is the least time between two ticks, which bounds the load of a busy queue.
	minTick = time.Millisecond
	// idleTick is the time to the next tick when nothing is due: a notify comes first.
	idleTick = time.Hour
	// maxCheckouts bounds the concurrent checkouts of one pool.
	maxCheckouts = 8
	// retryDelay is the delay after a failed renewal or checkin.
	retryDelay = 500 * time.Millisecond
)

// run manages the Dispatcher's own leases of the pool until the Dispatcher closes or evicts the pool: it acquires them
// while calls are queued, renews them, and returns them when they idle.
func (p *poolState) run() {
	life := p.dispatcher.life.Done()
	timer := time.NewTimer(minTick)
	defer timer.Stop()
	for {
		select {
		case <-life:
			return
		case <-p.wake:
		case <-timer.C:
		}
		next := p.tick()
		if p.dispatcher.evict(p, time.Now()) {
			return
		}
		timer.Reset(max(minTick, next))
		if !sleep.For(life, minTick) {
			return
		}
	}
}

// tick does what is due and returns the time to the next tick.
func (p *poolState) tick() time.Duration {
	p.mu.Lock()
	waiting := p.waitingLocked() > 0
	p.mu.Unlock()
	if waiting {
		p.dispatcher.discover(p.pool)
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return idleTick
	}
	defer p.notifyFreedLocked()
	p.peaks.observe(p.waitingLocked(), now) // of those that have waited since an earlier interval
	p.refreshScoresLocked(now)
	p.dispatchQueueLocked(now)
	p.referQueueLocked(now)
	lost := p.dispatcher.monitor.lost.Load()
	next := idleTick
	defer func() { p.nextTick = now.Add(next) }()
	if p.unusedLocked(now) {
		next = p.idleSince.Add(p.dispatcher.evictAfter).Sub(now)
	}
	for _, u := range p.order {
		do, in := u.nextActionLocked(now, p.queue.Len() > 0, lost)
		next = min(next, in, u.expireLocked(now, lost))
		p.doLocked(u, do)
	}
	return min(next, p.leaseForWaitersLocked(now, lost))
}

// leaseForWaitersLocked checks workers out for queued calls and for clients, whichever came first, and returns when to
// look again.
func (p *poolState) leaseForWaitersLocked(now time.Time, lost bool) time.Duration {
	switch first := p.clients.idle(); {
	case lost:
	case first != nil && p.precedesCallsLocked(first):
		p.leaseForClientsLocked(now)
		p.leaseForQueueLocked(now)
	default:
		p.leaseForQueueLocked(now)
		p.leaseForClientsLocked(now)
	}
	if p.waitingLocked() == 0 {
		return idleTick
	}
	return queueTick
}

// action is what a lease of the Dispatcher's own needs.
type action int

const (
	noAction action = iota
	renew
	checkin
)

// nextActionLocked decides about the upstream's lease and when to decide again. It ends a lease that is to be returned.
func (u *upstream) nextActionLocked(now time.Time, waiting, lost bool) (action, time.Duration) {
	l := u.lease
	// Suspend returns it; while Temporal is lost, no worker can take its lease back; its return notifies
	if l == nil || !l.own || u.gone || u.suspension != nil || lost {
		return noAction, idleTick
	}
	idleReturn := u.spec.Lease.IdleReturn.D()
	idle := !u.busyLocked()
	switch {
	case l.requesting:
		return noAction, idleTick // the end of the request notifies
	case now.Before(l.retryAt):
		return noAction, l.retryAt.Sub(now)
	case l.ended || l.fatal != "":
		u.endLeaseLocked("the worker asked to be replaced")
		if !idle {
			return noAction, queueTick
		}
		return checkin, idleTick
	case idle && l.returnDue(now):
		u.endLeaseLocked("it reached its maximum hold time")
		return checkin, idleTick
	case idle && !waiting && now.Sub(l.idleSince) >= idleReturn:
		u.endLeaseLocked("it was idle")
		return checkin, idleTick
	}
	left := l.expires.Sub(now) - renewMargin(l.ttl)
	if !l.renewAt.IsZero() {
		left = min(left, l.renewAt.Sub(now))
	}
	if left <= 0 {
		return renew, idleTick
	}
	idleCheck := idleReturn / 2
	if idle {
		idleCheck = l.idleSince.Add(idleReturn).Sub(now)
	}
	return noAction, min(left, max(idleCheck, queueTick), max(l.returnAt.Sub(now), queueTick))
}

// renewMargin is how long before its expiry a lease is renewed: a third of its length, at most 20 seconds.
func renewMargin(ttl time.Duration) time.Duration { return min(ttl/3, 20*time.Second) }

// doLocked does an action in the background.
func (p *poolState) doLocked(u *upstream, do action) {
	l := u.lease
	switch do {
	case renew:
		l.requesting = true
		p.dispatcher.work.Go(func() { p.renew(u, l) })
	case checkin:
		l.requesting = true
		request := l.checkin(api.OutcomeOK, "")
		p.dispatcher.work.Go(func() { p.checkin(u, l, request) })
	}
}

func (p *poolState) renew(u *upstream, l *activeLease) {
	ctx, cancel := context.WithTimeout(p.dispatcher.life, controlTimeout)
	defer cancel()
	sent := time.Now()
	lease, err := p.dispatcher.config.Control.Renew(ctx, l.lease.ID, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.notify()
	l.requesting = false
	switch {
	case err == nil:
		l.lease, l.ttl, l.expires, l.renewAt = *lease, lease.TTL(), expiry(*lease, sent), time.Time{}
		l.retryAt = time.Time{}
	case errors.Is(err, api.ErrLeaseFenced), errors.Is(err, api.ErrLeaseNotFound), errors.Is(err, api.ErrWorkerNotFound):
		p.dispatcher.logger.Warn("the gateway lost its lease; calls under it are cancelled", "worker", u.worker,
			"lease", l.lease.ID, "error", err)
		u.dropLocked(l, "the worker withdrew it")
	default:
		l.retryAt = time.Now().Add(retryDelay)
	}
}

// dropLocked forgets a lease of the Dispatcher's own that it has lost, and cancels the calls under it.
func (u *upstream) dropLocked(l *activeLease, reason string) {
	if u.lease == l {
		u.endLeaseLocked(reason)
		u.releaseLocked()
	}
	for c := range l.calls {
		c.cancel(api.Errorf(api.CodeLeaseFenced, "the gateway's lease on %s ended while the call ran: %s", u.worker, reason))
	}
}

func (p *poolState) checkin(u *upstream, l *activeLease, r api.CheckinRequest) {
	ctx, cancel := context.WithTimeout(p.dispatcher.life, controlTimeout)
	defer cancel()
	err := p.dispatcher.config.Control.Checkin(ctx, r)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.notify()
	l.requesting = false
	if err != nil && !errors.Is(err, api.ErrWorkerNotFound) {
		l.retryAt = time.Now().Add(retryDelay)
		return
	}
	if u.lease == l {
		u.releaseLocked()
		u.returnedLocked()
		if l.recalled {
			u.retryAt = time.Now().Add(recallTurn)
		}
	}
}

// mustWakeLocked reports whether queuing a call must wake the lease manager. Where all workers are leased and busy, as
// under full load, it need not: the next worker to finish takes the call.
func (p *poolState) mustWakeLocked(now time.Time) bool {
	return p.nextTick.Sub(now) > queueTick ||
		slices.ContainsFunc(p.order, func(u *upstream) bool { return p.mayLeaseLocked(u, now) })
}

// leaseForQueueLocked checks out as many workers as the queued calls need.
func (p *poolState) leaseForQueueLocked(now time.Time) {
	for worker := range p.queue.byWorker {
		if u := p.newestLiveLocked(worker); u != nil && p.checkouts < maxCheckouts && p.mayLeaseLocked(u, now) {
			p.leaseLocked(u)
		}
	}
	need := len(p.queue.heap)
	for _, u := range p.order {
		if u.checkingOut && !u.forClient {
			need -= u.capacity()
		}
	}
	for _, u := range p.order {
		if need <= 0 || p.checkouts >= maxCheckouts {
			return
		}
		if p.mayLeaseLocked(u, now) {
			need -= u.capacity()
			p.leaseLocked(u)
		}
	}
}

// mayLeaseLocked reports whether a checkout of the upstream's worker may succeed now.
func (p *poolState) mayLeaseLocked(u *upstream, now time.Time) bool {
	own := u.lease != nil && u.lease.own
	return !(u.checkingOut || u.gone || u.draining || u.suspension != nil || own || now.Before(u.retryAt) || !u.free &&
		now.Before(p.pace) ||
		p.rateLimitedLocked(u, now) || p.leasedByOtherLocked(u))
}

// leaseLocked checks the upstream's worker out in the background.
func (p *poolState) leaseLocked(u *upstream) {
	if u.requestID == "" {
		u.requestID = uuid.NewString()
	}
	u.checkingOut, u.free = true, false
	p.checkoutLocked(u.worker, tempool.CheckoutOptions{Holder: p.dispatcher.Holder(), RequestID: u.requestID}, nil,
		func(lease *api.Lease, err error, sent, now time.Time) {
			u.checkingOut = false
			if err == nil {
				u.requestID, u.refusals, u.retryAt = "", 0, time.Time{}
				p.acquiredLocked(u, *lease, sent, now)
				return
			}
			if api.CodeOf(err) != api.CodeUnavailable {
				u.requestID = "" // the worker certainly refused it
			}
			p.refusedLocked(u, err, now)
		})
}

// checkoutLocked asks a worker once, in the background and after first unless that is nil, and calls answered with the
// lock held.
func (p *poolState) checkoutLocked(worker string, o tempool.CheckoutOptions, first func(),
	answered func(lease *api.Lease, err error, sent, now time.Time)) {
	p.checkouts++
	p.dispatcher.work.Go(func() {
		if first != nil {
			first()
		}
		ctx, cancel := context.WithTimeout(p.dispatcher.life, controlTimeout)
		defer cancel()
		sent := time.Now()
		lease, err := p.dispatcher.config.Control.Checkout(ctx, worker, o)
		now := time.Now()
		p.mu.Lock()
		defer p.mu.Unlock()
		defer p.notify()
		p.checkouts--
		answered(lease, err, sent, now)
	})
}

// acquiredLocked takes a lease that u checked out. It may be for another incarnation of the worker; a lease whose
// process is not here goes straight back.
func (p *poolState) acquiredLocked(u *upstream, lease api.Lease, sent, now time.Time) {
	p.dispatcher.clock.observe(lease.GrantedAt, now)
	u.retireForLocked(lease)
	ref, err := api.ParseLeaseID(lease.ID)
	if err == nil && ref.Worker() == u.worker {
		u = p.upstreamOfLeaseLocked(ref)
	}
	if err == nil && u != nil && u.adoptLocked(lease, ref, true, expiry(lease, sent), now) {
		hold := p.dispatcher.config.HoldFor
		hold += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(hold))
		u.lease.returnAt, u.lease.refuseAfter = now.Add(hold), now.Add(2*hold)
		p.dispatchQueueLocked(now)
		return
	}
	p.dispatcher.work.Go(func() {
		ctx, cancel := context.WithTimeout(p.dispatcher.life, controlTimeout)
		defer cancel()
		p.dispatcher.returnLease(ctx, api.CheckinRequest{LeaseID: lease.ID, Outcome: api.OutcomeOK})
	})
}

// returnLeases returns all of the Dispatcher's own leases once no call starts any more.
func (p *poolState) returnLeases(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	p.mu.Lock()
	var checkins []api.CheckinRequest
	for _, u := range p.order {
		if l := u.lease; l != nil && l.own && !u.gone {
			u.endLeaseLocked("the gateway closes")
			checkins = append(checkins, *u.releaseLocked())
		}
	}
	p.mu.Unlock()
	for _, r := range checkins {
		p.dispatcher.returnLease(ctx, r)
	}
}

// returnLease checks a lease of the Dispatcher's own in, or logs why it could not.
func (d *Dispatcher) returnLease(ctx context.Context, r api.CheckinRequest) {
	if err := d.config.Control.Checkin(ctx, r); err != nil {
		d.logger.Warn("could not return a lease; it will expire", "lease", r.LeaseID, "error", err)
	}
}
