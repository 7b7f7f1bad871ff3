package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// Clients that wait for a lease on any worker of a pool wait in one line per pool. The Dispatcher checks workers out
// for them, one attempt per client at a time, and asks a worker only if it may be free:
//
//   - one whose lease was returned through this gateway, at once;
//   - one that the Dispatcher itself leases and does not use, or, in the client's turn among the queued calls, between
//     two calls;
//   - any other one now and then, because its holder may have returned it through Temporal.
//
// Only the first client asks a worker that may not be free, and while it does, one that is free is kept for it: those
// behind it get what is left. A client whose worker did not answer may have a lease there. It asks that one alone, for
// a while, and counts as absent: the next one is the first. So the number of clients that wait, and of workers, hardly
// matters for what waiting costs Temporal.

// waitHint is the retry hint of a checkout that was refused without a wait.
const waitHint = 20 * time.Millisecond

// waitingClients are the clients that wait for a lease on a worker of one pool. The pool's lock guards them.
type waitingClients struct {
	waiting   []*waitingClient // in the order of their arrival
	elsewhere workersElsewhere
}

// waitingClient is one of them.
type waitingClient struct {
	ctx     context.Context // of its request
	options tempool.CheckoutOptions
	turn    turn   // among the calls that wait
	trying  bool   // a checkout is under way
	unsure  bool   // of a worker that may not be free; one that is free would do, too
	worker  string // the only one to ask until pinEnds: it may have granted a lease, and its answer was lost
	pinEnds time.Time
	refusal error // the newest
	gone    bool
	result  chan checkedOut // gets one value unless the client leaves
}

type checkedOut struct {
	lease api.Lease
	err   error
}

// waitingClients counts the clients that wait for a lease of the pool.
func (d *Dispatcher) waitingClients(pool string) int {
	p := d.knownPool(pool)
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.clients.waiting)
}

// awaitLease waits in the line of the pool.
func (d *Dispatcher) awaitLease(ctx context.Context, pool string, o tempool.CheckoutOptions,
	wait time.Duration) (*api.Lease, error) {
	if o.RequestID == "" {
		o.RequestID = uuid.NewString() // a repeated attempt after a lost answer must not take a second lease
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	if p := d.knownPool(pool); p == nil || !p.hasWorker("") {
		if _, err := d.find(ctx, pool, ""); err != nil && !api.CodeOf(err).Retryable() {
			return nil, err
		}
	}
	p := d.lockPool(pool)
	if p == nil {
		return nil, ErrClosing
	}
	w, err := p.joinLocked(ctx, o)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p.notify()
	var reason func() error
	select {
	case r := <-w.result:
		return r.answer()
	case <-ctx.Done():
		reason = func() error { return context.Cause(ctx) }
	case <-timer.C:
		reason = func() error {
			switch {
			case d.monitor.lost.Load():
				w.refusal = api.Errorf(api.CodeUnavailable, "Temporal does not answer")
			case w.refusal == nil:
				w.refusal = api.Errorf(api.CodeBusy, "all are in use")
			}
			return api.Errorf(api.CodeQueueTimeout, "no worker of pool %s was free within %d ms (wait_ms): %w", pool,
				wait.Milliseconds(), w.refusal).After(time.Second)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case r := <-w.result: // it came at the last moment
		return r.answer()
	default:
	}
	w.gone = true
	p.clients.remove(w)
	return nil, reason()
}

func (r checkedOut) answer() (*api.Lease, error) {
	if r.err != nil {
		return nil, r.err
	}
	return &r.lease, nil
}

// joinLocked adds a client to the line.
func (p *poolState) joinLocked(ctx context.Context, o tempool.CheckoutOptions) (*waitingClient, error) {
	switch limit := p.specLocked().Queue.Size; {
	case p.closed != nil:
		return nil, p.closed
	case len(p.clients.waiting) >= limit:
		return nil, api.Errorf(api.CodeQueueFull, "%d clients wait for a lease of pool %s (queue.size)", limit,
			p.pool).After(time.Second)
	}
	now := time.Now()
	w := &waitingClient{ctx: ctx, options: o, turn: p.queue.arrive(now, DefaultPriority, 0),
		result: make(chan checkedOut, 1)}
	p.clients.waiting = append(p.clients.waiting, w)
	p.peaks.observe(p.waitingLocked(), now)
	return w, nil
}

func (c *waitingClients) remove(w *waitingClient) {
	c.waiting = slices.DeleteFunc(c.waiting, func(other *waitingClient) bool { return other == w })
}

func (c *waitingClients) refuseAll(err error) {
	for _, w := range c.waiting {
		w.result <- checkedOut{err: err}
	}
	c.waiting = nil
}

// idle is the first client for which no checkout is in progress, nil if there is none.
func (c *waitingClients) idle() *waitingClient {
	i := slices.IndexFunc(c.waiting, func(w *waitingClient) bool { return !w.trying })
	if i < 0 {
		return nil
	}
	return c.waiting[i]
}

// first is the first client that may ask any worker, nil if there is none.
func (c *waitingClients) first() *waitingClient {
	i := slices.IndexFunc(c.waiting, func(w *waitingClient) bool { return w.worker == "" })
	if i < 0 {
		return nil
	}
	return c.waiting[i]
}

// endPins lets clients ask any worker that have asked one for long enough. A granted lease expires without them.
func (c *waitingClients) endPins(now time.Time) {
	for _, w := range c.waiting {
		if !w.trying && w.worker != "" && !now.Before(w.pinEnds) {
			w.worker = ""
		}
	}
}

// precedesCallsLocked reports whether the client goes before all queued calls, as a call of its age with
// DefaultPriority would.
func (p *poolState) precedesCallsLocked(w *waitingClient) bool {
	precedes := func(head *waiter) bool { return head == nil || w.turn.before(head.turn) }
	for worker := range p.queue.byWorker {
		if !precedes(p.queue.PeekFor(worker)) {
			return false
		}
	}
	return precedes(p.queue.Peek())
}

// leaseForClientsLocked checks workers out for the clients that wait.
func (p *poolState) leaseForClientsLocked(now time.Time) {
	p.clients.endPins(now)
	unsure, first := 0, p.clients.first()
	for _, w := range p.clients.waiting {
		if w.trying {
			if w.unsure {
				unsure++
			}
			continue
		}
		if p.checkouts >= maxCheckouts {
			break
		}
		u, rank := p.prospectLocked(w, w == first, unsure, now)
		switch {
		case u != nil:
			w.unsure = rank > idleLease && w.worker == ""
			p.leaseForClientLocked(w, u)
		case p.precedesCallsLocked(w):
			p.returnForLocked(now)
		}
	}
	p.leaseElsewhereLocked(now)
}

// prospectLocked chooses the worker of this host that is the likeliest to be free for the client, nil if none should be
// asked now. So many free ones are kept for earlier clients.
func (p *poolState) prospectLocked(w *waitingClient, first bool, kept int,
	now time.Time) (best *upstream, rank chance) {
	rank = notNow
	for _, u := range p.order {
		if w.worker != "" && u.worker != w.worker {
			continue
		}
		r := p.chanceLocked(u, now)
		if r <= idleLease {
			kept--
		}
		if r < rank || r == rank && r != notNow && u.retryAt.Before(best.retryAt) {
			best, rank = u, r
		}
	}
	switch {
	case w.worker != "": // it may have granted the client a lease
	case rank <= idleLease && kept >= 0, rank > idleLease && !first:
		return nil, notNow
	}
	return best, rank
}

// chance orders workers by how likely a checkout for a client succeeds.
type chance int

const (
	surelyFree chance = iota
	idleLease         // of the Dispatcher, which can return it
	unknown
	leased // to a client, who may have returned it without this gateway
	notNow
)

func (p *poolState) chanceLocked(u *upstream, now time.Time) chance {
	l := u.lease
	switch {
	case u.gone, u.draining, u.suspension != nil, u.checkingOut, p.reserved[u.worker] > 0, p.leasedByOtherLocked(u),
		now.Before(u.retryAt):
		return notNow
	case l != nil && l.own:
		if l.ended || l.requesting || u.busyLocked() {
			return notNow
		}
		return idleLease
	case u.free:
		return surelyFree
	case now.Before(p.pace):
		return notNow
	case l != nil && !l.ended && now.Before(l.expires):
		return leased
	}
	return unknown
}

// returnForLocked makes the Dispatcher return one more lease between two calls, unless as many do as clients wait.
func (p *poolState) returnForLocked(now time.Time) {
	waiting := 0
	for _, w := range p.clients.waiting {
		if !w.trying {
			waiting++
		}
	}
	var least *upstream
	for _, u := range p.order {
		l := u.lease
		switch {
		case l == nil || !l.own || u.gone || u.draining || u.suspension != nil:
		case l.ended || l.returnDue(now):
			waiting--
		case least == nil || u.inFlight < least.inFlight:
			least = u
		}
	}
	if waiting > 0 && least != nil {
		l := least.lease
		l.returnAt = now
		if until := now.Add(2 * recallHold); until.Before(l.refuseAfter) {
			l.refuseAfter = until
		}
	}
}

// leaseForClientLocked checks the worker out for the client, in the background. A lease of the Dispatcher's own is
// returned first.
func (p *poolState) leaseForClientLocked(w *waitingClient, u *upstream) {
	w.trying, u.checkingOut, u.forClient, u.free = true, true, true, false
	var first func()
	if own := u.lease; own != nil && own.own {
		u.endLeaseLocked("a client waits for the worker")
		own.requesting = true
		back := own.checkin(api.OutcomeOK, "")
		first = func() { p.checkin(u, own, back) }
	}
	p.checkoutLocked(u.worker, w.options, first, func(lease *api.Lease, err error, sent, now time.Time) {
		u.checkingOut, u.forClient = false, false
		if err == nil {
			u.refusals, u.retryAt = 0, time.Time{}
			u.retireForLocked(*lease)
		} else {
			p.refusedLocked(u, err, now)
		}
		p.answerLocked(w, u.worker, lease, sent, err)
	})
}

// answerLocked gives the client its lease, or lets it wait on. The lease of a client that has left is returned.
func (p *poolState) answerLocked(w *waitingClient, worker string, lease *api.Lease, sent time.Time, err error) {
	w.trying = false
	switch code := api.CodeOf(err); {
	case err == nil && w.gone, err == nil && p.closed != nil:
		p.dispatcher.work.Go(func() { p.dispatcher.CheckinAbandoned(w.ctx, lease.ID) })
	case err == nil:
		p.adoptForLocked(*lease, w.options.RequestID, sent)
		p.clients.remove(w)
		w.result <- checkedOut{lease: *lease}
	case w.gone || p.closed != nil:
	case !code.Retryable() && code != api.CodeWorkerNotFound:
		p.clients.remove(w)
		w.result <- checkedOut{err: err}
	case code == api.CodeUnavailable:
		if w.worker == "" {
			w.pinEnds = sent.Add(pinLimit)
		}
		w.refusal, w.worker = err, worker
	default:
		w.refusal, w.worker = err, ""
	}
}

// refuseWaitingLocked records why the pool cannot serve a waiting client, which ends its wait if that is final. One
// that asks a worker learns nothing.
func (p *poolState) refuseWaitingLocked(w *waitingClient, err error) {
	if !w.trying && w.worker == "" && slices.Contains(p.clients.waiting, w) {
		p.answerLocked(w, "", nil, time.Time{}, err)
	}
}

// adoptForLocked records a client's lease of this pool, if its process is here.
func (p *poolState) adoptForLocked(lease api.Lease, requestID string, sent time.Time) {
	ref, err := api.ParseLeaseID(lease.ID)
	if err != nil || lease.Host != p.dispatcher.config.HostID {
		return
	}
	if u := p.upstreamOfLeaseLocked(ref); u != nil && u.adoptLocked(lease, ref, false, expiry(lease, sent), time.Now()) {
		u.lease.requestID = requestID
	}
}
