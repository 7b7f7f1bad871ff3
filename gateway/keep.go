package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

const (
	// controlTimeout bounds one request about the gateway's own leases.
	controlTimeout = 5 * time.Second
	// waitersPause is how often a desk looks around while calls wait.
	waitersPause = 20 * time.Millisecond
	// lookPause is the least time between two looks, so that busy queues do not keep a desk looking.
	lookPause = time.Millisecond
	// maxAsking bounds the checkouts of one pool that are on their way at one time.
	maxAsking = 8
	// Pauses after a refused checkout of one worker.
	askPause    = 20 * time.Millisecond
	askMaxPause = time.Second
	// askHintPause is the most that a refusal's own hint counts: a worker that starts may be ready long before.
	askHintPause = 100 * time.Millisecond
	// repeatPause is how long after a failed renewal or checkin the next one comes.
	repeatPause = 500 * time.Millisecond
)

// keep looks after the gateway's own leases of the pool until the gateway ends: it takes them while calls wait, renews them, and
// gives them back when they idle.
func (d *desk) keep() {
	timer := time.NewTimer(lookPause)
	defer timer.Stop()
	for {
		select {
		case <-d.gateway.life.Done():
			return
		case <-d.wake:
		case <-timer.C:
		}
		next := d.look()
		if d.gateway.leave(d, time.Now()) {
			return
		}
		timer.Reset(max(lookPause, next))
		select { // the least time between two looks
		case <-d.gateway.life.Done():
			return
		case <-time.After(lookPause):
		}
	}
}

// look does what is due and says when to look again.
func (d *desk) look() time.Duration {
	d.mu.Lock()
	waiting := d.queue.Len() > 0
	d.mu.Unlock()
	if waiting {
		d.gateway.discover(d.pool)
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shutBy != nil {
		return time.Hour
	}
	defer d.tellFreed()
	d.score(now)
	d.dispatch(now)
	lost := d.gateway.contact.lost.Load()
	next := time.Hour
	defer func() { d.looks = now.Add(next) }()
	if d.vacant(now) {
		next = d.emptied.Add(d.gateway.deskKept).Sub(now)
	}
	for _, s := range d.order {
		duty, in := s.duty(now, d.queue.Len() > 0, lost)
		next = min(next, in)
		d.do(s, duty)
	}
	if d.queue.Len() > 0 {
		d.ask(now, lost)
		next = min(next, waitersPause)
	}
	return next
}

// duty is what a lease of the gateway's own needs.
type duty int

const (
	nothing duty = iota
	renewal
	giveBack
)

// duty decides about the seat's lease, and when to decide again. It ends the lease if it is to be given back.
func (s *seat) duty(now time.Time, waiting, lost bool) (duty, time.Duration) {
	gr := s.grant
	if gr == nil || !gr.ours || s.gone {
		return nothing, time.Hour
	}
	if lost { // whoever cannot be told cannot take it back; contact's return stirs
		return nothing, time.Hour
	}
	idleReturn := s.spec.Lease.IdleReturn.D()
	quiet := s.inFlight == 0 && (s.conn == nil || s.conn.InFlight() == 0)
	switch {
	case gr.asking:
		return nothing, time.Hour // its end stirs
	case now.Before(gr.retryAt):
		return nothing, gr.retryAt.Sub(now)
	case gr.ended || gr.fatal != "":
		s.endGrant("the worker asked to be replaced")
		if !quiet {
			return nothing, waitersPause
		}
		return giveBack, time.Hour
	case quiet && gr.tired(now):
		s.endGrant("it was held long enough")
		return giveBack, time.Hour
	case quiet && !waiting && now.Sub(gr.idleFrom) >= idleReturn:
		s.endGrant("it was idle")
		return giveBack, time.Hour
	}
	margin := renewMargin(gr.lease)
	left := gr.lease.ExpiresAt.Sub(now) - margin
	if left <= 0 {
		return renewal, time.Hour
	}
	idle := idleReturn / 2
	if quiet {
		idle = gr.idleFrom.Add(idleReturn).Sub(now)
	}
	return nothing, min(left, max(idle, waitersPause), max(gr.tiredAt.Sub(now), waitersPause))
}

// renewMargin is how long before its expiry a lease is renewed: a third of its length, at most 20 seconds.
func renewMargin(l api.Lease) time.Duration {
	return min(l.ExpiresAt.Sub(l.GrantedAt)/3, 20*time.Second)
}

// do carries out a duty in the background, under mu.
func (d *desk) do(s *seat, what duty) {
	gr := s.grant
	switch what {
	case renewal:
		gr.asking = true
		d.gateway.work.Go(func() { d.renew(s, gr) })
	case giveBack:
		gr.asking = true
		checkin := checkinOf(gr, api.OutcomeOK, "")
		d.gateway.work.Go(func() { d.checkin(s, gr, checkin) })
	}
}

func (d *desk) renew(s *seat, gr *grant) {
	ctx, cancel := context.WithTimeout(d.gateway.life, controlTimeout)
	defer cancel()
	lease, err := d.gateway.config.Control.Renew(ctx, gr.lease.ID, 0)
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.stir()
	gr.asking = false
	switch {
	case err == nil:
		if lease.ExpiresAt.After(gr.lease.ExpiresAt) {
			gr.lease.ExpiresAt = lease.ExpiresAt
		}
		gr.retryAt = time.Time{}
	case errors.Is(err, api.ErrLeaseFenced), errors.Is(err, api.ErrLeaseNotFound), errors.Is(err, api.ErrWorkerNotFound):
		d.gateway.logger.Warn("a lease of the gateway's own is no longer its own", "lease", gr.lease.ID, "error", err)
		d.drop(s, gr, "the worker has taken it back")
	default:
		gr.retryAt = time.Now().Add(repeatPause)
	}
}

// drop forgets a lease of the gateway's own that nobody waits to get back, under mu. Its calls are cut.
func (d *desk) drop(s *seat, gr *grant, why string) {
	if s.grant == gr {
		s.endGrant(why)
		s.letGo()
	}
	for f := range gr.flights {
		f.cancel(api.Errorf(api.CodeLeaseFenced, "the gateway's lease on %s ended while the call ran: %s", s.worker, why))
	}
}

func (d *desk) checkin(s *seat, gr *grant, r api.CheckinRequest) {
	ctx, cancel := context.WithTimeout(d.gateway.life, controlTimeout)
	defer cancel()
	err := d.gateway.config.Control.Checkin(ctx, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.stir()
	gr.asking = false
	if err != nil && !errors.Is(err, api.ErrWorkerNotFound) {
		gr.retryAt = time.Now().Add(repeatPause)
		return
	}
	if s.grant == gr {
		s.letGo()
	}
}

// wanted reports whether a call that begins to wait is news to keep, under mu. Where all workers are leased and busy, as they are under
// full load, it is not: the next of them to come free takes the call.
func (d *desk) wanted(now time.Time) bool {
	return d.looks.Sub(now) > waitersPause || slices.ContainsFunc(d.order, func(s *seat) bool { return d.leasable(s, now) })
}

// ask tries to lease more workers for the calls that wait, under mu.
func (d *desk) ask(now time.Time, lost bool) {
	if lost {
		return
	}
	need := d.queue.Len()
	for _, s := range d.order {
		if s.asking {
			need -= s.capacity()
		}
	}
	for _, s := range d.order {
		if need <= 0 || d.asking >= maxAsking {
			return
		}
		if !d.leasable(s, now) {
			continue
		}
		need -= s.capacity()
		d.lease(s)
	}
}

// leasable reports whether it makes sense to ask the seat's worker for a lease now, under mu.
func (d *desk) leasable(s *seat, now time.Time) bool {
	return !(s.asking || s.gone || s.draining || now.Before(s.retryAt) || s.grant != nil && s.grant.ours || d.limited(s, now) || d.spokenFor(s))
}

// lease asks the seat's worker for a lease in the background, under mu.
func (d *desk) lease(s *seat) {
	if s.requestID == "" {
		s.requestID = uuid.NewString()
	}
	s.asking = true
	d.asking++
	request := tempool.CheckoutOptions{Holder: d.gateway.Holder(), RequestID: s.requestID}
	d.gateway.work.Go(func() { d.checkout(s, request) })
}

func (d *desk) checkout(s *seat, o tempool.CheckoutOptions) {
	ctx, cancel := context.WithTimeout(d.gateway.life, controlTimeout)
	defer cancel()
	lease, err := d.gateway.config.Control.Checkout(ctx, s.worker, o)
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.stir()
	s.asking = false
	d.asking--
	if err == nil {
		s.requestID, s.refusals, s.retryAt = "", 0, time.Time{}
		d.granted(s, *lease, now)
		return
	}
	var coded *api.Error
	pause := askPause << min(s.refusals, 6)
	if errors.As(err, &coded) {
		pause = max(pause, min(coded.RetryAfter, askHintPause))
		if coded.Code != api.CodeUnavailable {
			s.requestID = "" // it was refused for certain
			s.account.refused.Add(1)
		}
	}
	s.refusals++
	s.retryAt = now.Add(min(pause, askMaxPause))
}

// granted takes a lease that the gateway asked for, under mu. It may be for another incarnation of the worker than the seat that
// asked; one whose process is not here goes straight back.
func (d *desk) granted(s *seat, lease api.Lease, now time.Time) {
	ref, err := api.ParseLeaseID(lease.ID)
	if err == nil && ref.Worker() == s.worker {
		s = d.seatOfLease(ref)
	}
	if err == nil && s != nil && s.adopt(lease, ref, true, now) {
		hold := d.gateway.config.HoldFor
		hold += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(hold))
		s.grant.tiredAt, s.grant.spentAt = now.Add(hold), now.Add(2*hold)
		d.dispatch(now)
		return
	}
	d.gateway.work.Go(func() {
		ctx, cancel := context.WithTimeout(d.gateway.life, controlTimeout)
		defer cancel()
		if err := d.gateway.config.Control.Checkin(ctx, api.CheckinRequest{LeaseID: lease.ID, Outcome: api.OutcomeOK}); err != nil {
			d.gateway.logger.Warn("a lease that came too late was not given back; it expires", "lease", lease.ID, "error", err)
		}
	})
}

// reconcile renews every lease of the gateway's own at once, which tells those that are no longer its own.
func (d *desk) reconcile() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.order {
		if gr := s.grant; gr != nil && gr.ours && !gr.ended && !gr.asking && !s.gone {
			d.do(s, renewal)
		}
	}
	d.stir()
}

// returnAll gives every lease of the gateway's own back, when no call begins any more.
func (d *desk) returnAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	d.mu.Lock()
	var checkins []api.CheckinRequest
	for _, s := range d.order {
		if gr := s.grant; gr != nil && gr.ours && !s.gone {
			s.endGrant("the gateway closes")
			checkins = append(checkins, *s.letGo())
		}
	}
	d.mu.Unlock()
	for _, r := range checkins {
		if err := d.gateway.config.Control.Checkin(ctx, r); err != nil {
			d.gateway.logger.Warn("a lease was not given back; it expires", "lease", r.LeaseID, "error", err)
		}
	}
}
