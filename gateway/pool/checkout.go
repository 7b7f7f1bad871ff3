package pool

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/internal/tracecontext"
)

// MaxCheckoutWait is the largest wait_ms.
const MaxCheckoutWait = 5 * time.Minute

const (
	// waitHint is the retry hint of a checkout that was refused without a wait.
	waitHint = 20 * time.Millisecond
	// A worker that has refused a checkout, for somebody has leased it without this gateway, is not asked again for
	// refusalPause, which doubles to maxRefusalPause.
	refusalPause    = 20 * time.Millisecond
	maxRefusalPause = 4 * time.Second
)

// CheckoutRequest asks for a lease on any worker of a pool.
type CheckoutRequest struct {
	Holder  string `json:"holder"`
	Session string `json:"session,omitempty"`
	// Key says whose calls the lease is for, as Request.Key does: a process of the key is preferred.
	Key string `json:"key,omitempty"`
	// TTLMS is how long the lease lasts unless it is renewed; 0 means the spec's lease.ttl.
	TTLMS int64 `json:"ttl_ms,omitempty"`
	// WaitMS is how long to wait for a free worker; 0 means not at all.
	WaitMS int64 `json:"wait_ms,omitempty"`
	// RequestID makes the checkout idempotent while the same worker answers.
	RequestID string `json:"request_id,omitempty"`
	// Token is the lease's token; "" lets the gateway make one. A repeated RequestID needs the same Token.
	Token string `json:"token,omitempty"`

	// Forward has another host serve the request, which may wait here then; nil for one that must stay here. Guest says
	// how long one may wait that another gateway has forwarded, in place of WaitMS; nil for any other.
	Forward func(ctx context.Context, to Place) error `json:"-"`
	Guest   *Guest                                    `json:"-"`
}

func (r CheckoutRequest) validate() error {
	if invalid := (api.CheckoutRequest{RequestID: r.RequestID, Holder: r.Holder, Session: r.Session,
		TTLMS: r.TTLMS}).Validate(); invalid != nil {
		return invalid
	}
	if r.Token != "" {
		if invalid := api.CheckLeaseToken(r.Token); invalid != nil {
			return invalid
		}
	}
	if len(r.Key) > api.MaxKey {
		return api.Errorf(api.CodeInvalid, "key has %d bytes; at most %d are allowed", len(r.Key), api.MaxKey)
	}
	if r.WaitMS < 0 || r.WaitMS > MaxCheckoutWait.Milliseconds() {
		return api.Errorf(api.CodeInvalid, "wait_ms is %d; it must be from 0 to %d", r.WaitMS, MaxCheckoutWait.Milliseconds())
	}
	return nil
}

// Identified is the request with a RequestID and a Token, so that a repeated attempt does not take a second lease.
func (r CheckoutRequest) Identified() CheckoutRequest {
	r.RequestID, r.Token = cmp.Or(r.RequestID, uuid.NewString()), cmp.Or(r.Token, api.NewLeaseToken())
	return r
}

// Checkout leases a worker of the pool on this host to a client. If none is free, it fails with CodeNoWorkers without a
// wait. With one, the client waits in one line with the calls of the pool, and stands there as a call of its arrival
// with DefaultPriority; it fails with CodeQueueTimeout when its time is over and with CodeQueueFull if queue.size
// clients wait. The lease is nil if r.Forward had another host serve the client. A repeated RequestID gets the lease
// that its holder has.
func (d *Dispatcher) Checkout(ctx context.Context, pool string, r CheckoutRequest) (*api.Lease, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	c := newCheckout(r.Identified())
	if c.guest != nil {
		c.limit = c.guest.Patience
	}
	if lease := d.leaseOf(pool, c.options); lease != nil {
		return lease, nil
	}
	found, err := d.find(ctx, pool, "")
	_, other := errors.AsType[api.OtherHostError](err)
	switch c.pool = d.knownPool(pool); {
	case found != nil && (!other || c.forward != nil):
		c.pool, c.refusal = found, err
	case c.pool == nil || found != nil || !api.CodeOf(err).Retryable():
		return nil, err
	}
	if c.forward != nil {
		if home := c.pool.home(ctx, r.Key, nil); home != nil && c.send(ctx, *home) {
			return nil, c.refusal
		}
	}
	return c.wait(ctx)
}

// send sends the client to another host. It reports whether that is the end: the client was served there, or c.refusal
// says why it is not served anywhere.
func (c *checkout) send(ctx context.Context, to Place) (done bool) {
	err := c.forward(ctx, to)
	if errors.Is(err, ErrStays) {
		c.forward = nil
		return false
	}
	c.refusal = err
	return err == nil || api.CodeOf(err) != "" && !errors.Is(err, ErrNotTaken) && !Started(err) && !mayBeGranted(err)
}

// LeaseByTemporal leases a worker of another host whose gateway cannot be used from here.
func (d *Dispatcher) LeaseByTemporal(ctx context.Context, worker string, r CheckoutRequest) (*api.Lease, error) {
	name, _, err := api.ParseWorkerName(worker)
	if err != nil {
		return nil, err
	}
	c := newCheckout(r)
	if c.pool = d.knownPool(name); c.pool == nil {
		return nil, ErrClosing
	}
	return c.ask(ctx, worker, nil)
}

func newCheckout(r CheckoutRequest) *checkout {
	return &checkout{key: hashKey(r.Key), forward: r.Forward, guest: r.Guest,
		limit: time.Duration(r.WaitMS) * time.Millisecond,
		options: tempool.CheckoutOptions{Holder: r.Holder, Session: r.Session,
			TTL: time.Duration(r.TTLMS) * time.Millisecond, RequestID: r.RequestID, Token: r.Token}}
}

// checkout is a client's request for a lease.
type checkout struct {
	pool    *poolState
	options tempool.CheckoutOptions
	key     string        // its hash
	limit   time.Duration // of the wait; 0 for none
	forward func(context.Context, Place) error
	guest   *Guest
	arrived arrival
	asked   int   // workers, without a wait
	refusal error // the newest
}

// wait waits in the line of the pool until a worker grants the lease, or another host has served the client.
func (c *checkout) wait(ctx context.Context) (*api.Lease, error) {
	for {
		w, err := c.join()
		if err != nil {
			return nil, err
		}
		u, err := w.wait(ctx)
		switch sent, _ := err.(*sentToPeer); { // it is never wrapped
		case sent != nil:
			if c.send(ctx, sent.to) {
				return nil, c.refusal
			}
		case api.CodeOf(err) == api.CodeQueueTimeout:
			return nil, api.Errorf(api.CodeQueueTimeout, "no worker of pool %s was free within %d ms (wait_ms): %w",
				c.pool.pool, c.limit.Milliseconds(), c.reason()).After(time.Second)
		case err != nil:
			return nil, err
		default:
			lease, err := c.ask(ctx, u.worker, u)
			if err == nil || !mayBeGranted(err) {
				return lease, err
			}
			c.refusal = err
		}
	}
}

// mayBeGranted reports whether another worker, or the same one later, may grant a lease that was refused with err.
func mayBeGranted(err error) bool {
	code := api.CodeOf(err)
	return code.Retryable() || code == api.CodeWorkerNotFound
}

// reason is why no worker has granted the lease.
func (c *checkout) reason() error {
	switch {
	case c.pool.dispatcher.monitor.lost.Load():
		return api.Errorf(api.CodeUnavailable, "Temporal does not answer")
	case c.refusal != nil:
		return c.refusal
	}
	return api.Errorf(api.CodeBusy, "all are in use")
}

// join adds the client to the line, at the place that it had before. One that does not wait leaves it again, with an
// error, unless a worker is free.
func (c *checkout) join() (*waiter, error) {
	now := time.Now()
	p := c.pool.lock()
	if p == nil {
		return nil, ErrClosing
	}
	defer p.mu.Unlock()
	c.pool = p
	again := c.arrived.seq > 0
	switch limit, before := p.specLocked().Queue.Size, p.queue.Clients(); {
	case p.dispatcher.closing.Load():
		return nil, ErrClosing
	case before >= limit && !again:
		return nil, api.Errorf(api.CodeQueueFull, "%d clients wait for a lease of pool %s (queue.size)", limit,
			p.pool).After(time.Second)
	case before > 0 && c.limit == 0:
		return nil, api.Errorf(api.CodeNoWorkers,
			"no worker of pool %s is free, and %d clients wait for one; wait with wait_ms", p.pool, before).After(time.Second)
	}
	if err := checkKey(p.pool, p.spec.IsolatedBy(), c.key); err != nil {
		return nil, err
	}
	w := newWaiter(p, nil, &Target{key: c.key, preferred: p.workerOf(c.options.Session), arrived: c.arrived})
	w.timeout = c.limit
	switch {
	case again:
	case c.guest != nil:
		p.welcomeLocked(w, DefaultPriority, *c.guest, now)
	default:
		w.arrival = p.queue.arrive(now, DefaultPriority, w.timeout)
	}
	if c.limit > 0 {
		w.forward = c.forward
		p.waitLocked(w, now)
		c.arrived, c.limit = w.arrival, w.timeout
		return w, nil
	}
	p.queue.Push(w)
	p.dispatchQueueLocked(now)
	c.arrived = w.arrival
	if c.asked++; p.queue.Remove(w) || c.asked > len(p.order) {
		if w.reserved != nil {
			w.reserved.unreserveLocked()
		}
		return nil, api.Errorf(api.CodeNoWorkers, "no worker of pool %s is free: %w", p.pool, c.reason()).After(waitHint)
	}
	return w, nil
}

// workerOf is the worker that served the session last, "" for none.
func (p *poolState) workerOf(session string) string {
	if session == "" {
		return ""
	}
	worker, found := p.dispatcher.config.Affinity.Lookup(p.pool, session)
	if found {
		p.stats.hits.Add(1)
	} else {
		p.stats.misses.Add(1)
	}
	return worker
}

// BindSession is Put of the affinity table. It emits that the session is bound to another worker than before.
func (d *Dispatcher) BindSession(pool, session, worker string, may func(bound string, closed bool) bool) bool {
	was, done := d.config.Affinity.Put(pool, session, worker, may)
	if done && was != worker {
		d.config.Events.Emit(api.EventSessionBound, api.PoolSource(pool), time.Now(),
			api.SessionEvent{Host: d.config.HostID, Session: session, From: was, Worker: worker})
	}
	return done
}

// unreserveLocked opens a worker again that was reserved for a client.
func (u *upstream) unreserveLocked() {
	u.leases.Reserved = false
	if u.lease == nil {
		u.intended = ""
	}
	u.openedLocked()
}

// ask asks a worker for the lease, once; u is what is reserved of it for the client, nil on another host. Temporal
// carries out a request whose sender has left: a lease that comes too late is returned, since it would cost the worker
// its process when it expires.
func (c *checkout) ask(ctx context.Context, worker string, u *upstream) (*api.Lease, error) {
	p, d := c.pool, c.pool.dispatcher
	attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlTimeout)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	sent := time.Now()
	attempt, span := d.traceLease(attempt, "checkout", worker, 0)
	lease, err := d.config.Control.Checkout(attempt, worker, c.options)
	if err == nil {
		span.SetAttributes(tracecontext.Incarnation.Int64(lease.Incarnation))
	}
	tracecontext.End(span, err)
	p.mu.Lock()
	if u != nil {
		if err == nil {
			u.refusals, u.retryAt = 0, time.Time{}
			u.retireForLocked(*lease)
			p.adoptForLocked(*lease, c.options.RequestID, sent)
		} else { // clients may ask the worker again later
			u.retryAt = time.Now().Add(min(refusalPause<<min(u.refusals, 10), maxRefusalPause))
			u.refusals++
			if api.CodeOf(err) != api.CodeUnavailable {
				u.stats.refused++
			}
		}
		u.unreserveLocked() // after the lease has closed it
	}
	p.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil: // nobody is there to use it
		d.CheckinAbandoned(ctx, lease.ID)
		return nil, context.Cause(ctx)
	case d.closing.Load():
		d.CheckinAbandoned(ctx, lease.ID)
		return nil, ErrClosing
	}
	return lease, nil
}

// adoptForLocked records a client's lease of this pool that has just been granted or renewed, if its process is here.
func (p *poolState) adoptForLocked(granted api.Lease, requestID string, sent time.Time) {
	ref, err := api.ParseLeaseID(granted.ID)
	if err != nil || granted.Host != p.dispatcher.config.HostID {
		return
	}
	p.dispatcher.clock.Observe(granted.GrantedAt, time.Now())
	u := p.findLocked(ref.Worker(), ref.Incarnation)
	if u != nil && u.adoptLocked(granted, ref, lease.Expiry(granted, sent)) && requestID != "" {
		u.lease.requestID = requestID
	}
}

// leaseOf is the lease that the same request of the same holder got here and still has, or nil.
func (d *Dispatcher) leaseOf(pool string, o tempool.CheckoutOptions) *api.Lease {
	p := d.knownPool(pool)
	if p == nil {
		return nil
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.order {
		if l := u.lease; l != nil && l.requestID == o.RequestID && l.lease.Holder == o.Holder &&
			lease.TokenAuthority(o.Token, false).Opens(l.key) {
			if inUse := u.leaseInUseLocked(now); inUse != nil {
				inUse.Token = o.Token
				return inUse
			}
		}
	}
	return nil
}
