package pool

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
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
	// elsewherePace is the time between two attempts of waiting clients on workers of other hosts, whose own gateways
	// serve the clients there; elsewhereAlone is that of a host without a worker of the pool.
	elsewherePace  = 500 * time.Millisecond
	elsewhereAlone = 50 * time.Millisecond
	// elsewhereAfter is how long the first client waits for a worker of this host alone.
	elsewhereAfter = 100 * time.Millisecond
	// elsewhereFresh is how long the roster of other hosts' workers is cached.
	elsewhereFresh = 2 * time.Second
)

// CheckoutRequest asks for a lease on any worker of a pool.
type CheckoutRequest struct {
	Holder  string `json:"holder"`
	Session string `json:"session,omitempty"`
	// TTLMS is how long the lease lasts unless it is renewed; 0 means the spec's lease.ttl.
	TTLMS int64 `json:"ttl_ms,omitempty"`
	// WaitMS is how long to wait for a free worker; 0 means not at all.
	WaitMS int64 `json:"wait_ms,omitempty"`
	// RequestID makes the checkout idempotent while the same worker answers.
	RequestID string `json:"request_id,omitempty"`
	// Token is the lease's token; "" lets the gateway make one. A repeated RequestID needs the same Token.
	Token string `json:"token,omitempty"`
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
	if r.WaitMS < 0 || r.WaitMS > MaxCheckoutWait.Milliseconds() {
		return api.Errorf(api.CodeInvalid, "wait_ms is %d; it must be from 0 to %d", r.WaitMS, MaxCheckoutWait.Milliseconds())
	}
	return nil
}

// Checkout leases a worker of the pool to a client, one of this host if any is free. If none is, it fails with
// CodeNoWorkers without a wait. With one, the client waits in one line with the calls of the pool, and stands there as
// a call of its arrival with DefaultPriority; it fails with CodeQueueTimeout when its time is over and with
// CodeQueueFull if queue.size clients wait. A repeated RequestID gets the lease that its holder has.
func (d *Dispatcher) Checkout(ctx context.Context, pool string, r CheckoutRequest) (*api.Lease, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	options := tempool.CheckoutOptions{Holder: r.Holder, Session: r.Session,
		TTL: time.Duration(r.TTLMS) * time.Millisecond, RequestID: r.RequestID, Token: cmp.Or(r.Token, api.NewLeaseToken())}
	if lease := d.leaseOf(pool, options); lease != nil {
		return lease, nil
	}
	p := d.knownPool(pool)
	if p == nil || !p.hasWorker("") {
		found, err := d.find(ctx, pool, "")
		if found != nil { // it may have workers on other hosts
			p = found
		} else if p == nil || !api.CodeOf(err).Retryable() {
			return nil, err
		}
	}
	c := &checkout{pool: p, options: options}
	if r.WaitMS == 0 {
		return c.tryAll(ctx)
	}
	options.RequestID = cmp.Or(options.RequestID, uuid.NewString()) // a repeated attempt must not take a second lease
	c.options = options
	return c.wait(ctx, time.Duration(r.WaitMS)*time.Millisecond)
}

// checkout is a client's request for a lease.
type checkout struct {
	pool    *poolState
	options tempool.CheckoutOptions
	arrived arrival
	refusal error // the newest
}

// wait waits in the line of the pool until a worker grants the lease.
func (c *checkout) wait(ctx context.Context, limit time.Duration) (*api.Lease, error) {
	p := c.pool
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		w, err := p.joinLine(c)
		if err != nil {
			return nil, err
		}
		select {
		case err = <-w.started:
		case <-ctx.Done():
			return nil, w.leave(context.Cause(ctx))
		case <-timer.C:
			return nil, w.leave(c.timedOut(limit))
		}
		u := w.reserved
		w.recycle()
		var lease *api.Lease
		switch {
		case err != nil:
			return nil, err
		case u != nil:
			lease, err = c.ask(ctx, u.worker, u)
		default:
			lease, err = c.askElsewhere(ctx)
		}
		if err == nil || !mayBeGranted(err) {
			return lease, err
		}
		c.refusal = err
	}
}

// mayBeGranted reports whether another worker, or the same one later, may grant a lease that was refused with err.
func mayBeGranted(err error) bool {
	code := api.CodeOf(err)
	return code.Retryable() || code == api.CodeWorkerNotFound
}

func (c *checkout) timedOut(limit time.Duration) error {
	reason := c.refusal
	switch {
	case c.pool.dispatcher.monitor.lost.Load():
		reason = api.Errorf(api.CodeUnavailable, "Temporal does not answer")
	case reason == nil:
		reason = api.Errorf(api.CodeBusy, "all are in use")
	}
	return api.Errorf(api.CodeQueueTimeout, "no worker of pool %s was free within %d ms (wait_ms): %w", c.pool.pool,
		limit.Milliseconds(), reason).After(time.Second)
}

// joinLine adds the client to the line, at the place that it had before.
func (p *poolState) joinLine(c *checkout) (*waiter, error) {
	now := time.Now()
	p.mu.Lock()
	if p.evicted {
		p.mu.Unlock()
		if p = p.dispatcher.lockPool(p.pool); p == nil {
			return nil, ErrClosing
		}
		c.pool = p
	}
	defer p.mu.Unlock()
	again := c.arrived.turn.seq > 0
	switch limit := p.specLocked().Queue.Size; {
	case p.closed != nil:
		return nil, p.closed
	case p.queue.Clients() >= limit && !again:
		return nil, api.Errorf(api.CodeQueueFull, "%d clients wait for a lease of pool %s (queue.size)", limit,
			p.pool).After(time.Second)
	}
	w := newWaiter(p, nil, &Target{preferred: p.workerOfLocked(c.options.Session), priority: DefaultPriority,
		arrived: c.arrived})
	w.checkout, w.queuedAt = true, now
	if p.queue.Clients() == 0 && len(p.order) > 0 { // one of this host may be free soon
		p.elsewhere = now.Add(elsewhereAfter)
	}
	p.queue.Push(w)
	c.arrived = arrival{now, w.turn}
	p.peaks.observe(p.waitingLocked(), now)
	p.dispatchQueueLocked(now)
	p.notify()
	return w, nil
}

// workerOfLocked is the worker that served the session last, "" for none.
func (p *poolState) workerOfLocked(session string) string {
	if session == "" || p.dispatcher.config.Affinity == nil {
		return ""
	}
	worker, _ := p.dispatcher.config.Affinity.Lookup(p.pool, session)
	return worker
}

// leave takes the client out of the line, and opens the worker again that it has got at the last moment.
func (w *waiter) leave(reason error) error {
	p := w.pool
	p.mu.Lock()
	removed := p.queue.Remove(w)
	p.mu.Unlock()
	if !removed {
		if err := <-w.started; err == nil && w.reserved != nil {
			w.reserved.unreserve()
		}
	}
	w.recycle()
	return reason
}

// unreserve opens a worker again that was reserved for a client.
func (u *upstream) unreserve() {
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	u.unreserveLocked()
}

func (u *upstream) unreserveLocked() {
	u.leases.Reserved = false
	u.openedLocked()
}

// ask asks a worker for the lease, once. u is the worker's incarnation here that is reserved for the client; nil for a
// worker of another host. Temporal carries out a request whose sender has left: a lease that comes too late is
// returned, since it would cost the worker its process when it expires.
func (c *checkout) ask(ctx context.Context, worker string, u *upstream) (*api.Lease, error) {
	p, d := c.pool, c.pool.dispatcher
	attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlTimeout)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	p.mu.Lock()
	p.checkouts++
	p.mu.Unlock()
	sent := time.Now()
	lease, err := d.config.Control.Checkout(attempt, worker, c.options)
	p.mu.Lock()
	p.checkouts--
	if u != nil {
		u.answeredLocked(lease, err)
	}
	if err == nil {
		p.adoptForLocked(*lease, c.options.RequestID, sent)
	} else if s := p.stats.workers[worker]; s != nil && api.CodeOf(err) != api.CodeUnavailable {
		s.refused.Add(1)
	}
	if u != nil { // after the lease has closed it
		u.unreserveLocked()
	}
	closed := p.closed
	p.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil: // nobody is there to use it
		d.CheckinAbandoned(ctx, lease.ID)
		return nil, context.Cause(ctx)
	case closed != nil:
		d.CheckinAbandoned(ctx, lease.ID)
		return nil, closed
	}
	return lease, nil
}

// answeredLocked records when clients may ask the worker again.
func (u *upstream) answeredLocked(lease *api.Lease, err error) {
	if err == nil {
		u.refusals, u.retryAt = 0, time.Time{}
		u.retireForLocked(*lease)
		return
	}
	u.retryAt = time.Now().Add(min(refusalPause<<min(u.refusals, 10), maxRefusalPause))
	u.refusals++
}

// adoptForLocked records a client's lease of this pool, if its process is here.
func (p *poolState) adoptForLocked(granted api.Lease, requestID string, sent time.Time) {
	ref, err := api.ParseLeaseID(granted.ID)
	if err != nil || granted.Host != p.dispatcher.config.HostID {
		return
	}
	p.dispatcher.clock.Observe(granted.GrantedAt, time.Now())
	u := p.upstreamOfLeaseLocked(ref)
	if u != nil && u.adoptLocked(granted, ref, lease.Expiry(granted, sent)) && requestID != "" {
		u.lease.requestID = requestID
	}
}

// tryAll asks each worker of the pool that may be free, once: those of this host, the best first, then others.
func (c *checkout) tryAll(ctx context.Context) (*api.Lease, error) {
	p := c.pool
	if n := p.clientsWaiting(); n > 0 {
		return nil, api.Errorf(api.CodeNoWorkers,
			"no worker of pool %s is free, and %d clients wait for one; wait with wait_ms", p.pool, n).After(time.Second)
	}
	var refusal error
	asked := map[*upstream]bool{}
	for u := p.reserveBest(c.options.Session); u != nil; u = p.reserveBest(c.options.Session) {
		if asked[u] { // the others took so long that it may be asked again
			u.unreserve()
			break
		}
		asked[u] = true
		lease, err := c.ask(ctx, u.worker, u)
		if err == nil || !mayBeGranted(err) {
			return lease, err
		}
		refusal = err
	}
	status, err := p.dispatcher.config.Control.Status(ctx, p.pool)
	if err != nil {
		return nil, err
	}
	workers := workersElsewhere(status, p.dispatcher.config.HostID)
	rand.Shuffle(len(workers), func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
	for _, worker := range workers {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		lease, err := c.ask(ctx, worker, nil)
		if err == nil || !mayBeGranted(err) {
			return lease, err
		}
		refusal = err
	}
	switch {
	case refusal != nil:
		return nil, api.Errorf(api.CodeNoWorkers, "no worker of pool %s is free: %w", p.pool, refusal).After(waitHint)
	case p.hasWorker(""):
		return nil, api.Errorf(api.CodeNoWorkers, "no worker of pool %s is free: all are in use", p.pool).After(waitHint)
	}
	return nil, api.Errorf(api.CodeNoWorkers, "pool %s has no worker in service (0 of %d)", p.pool,
		status.Size).After(time.Second)
}

func (p *poolState) clientsWaiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.Clients()
}

// reserveBest reserves the best worker of this host for a client that does not wait; nil if none is free.
func (p *poolState) reserveBest(session string) *upstream {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil || p.fencesLocked(now) || !p.queue.Empty("") {
		return nil
	}
	u := p.chooseLocked(p.workerOfLocked(session), true, now)
	if u != nil {
		p.takeTurnLocked(u)
		u.leases.Reserved = true
	}
	return u
}

// sendElsewhereLocked has the first client that waits ask a worker of another host, now and then.
func (p *poolState) sendElsewhereLocked(now time.Time) {
	w := p.queue.PeekClient()
	if w == nil || now.Before(p.elsewhere) {
		return
	}
	p.elsewhere = now.Add(elsewherePace)
	if len(p.order) == 0 {
		p.elsewhere = now.Add(elsewhereAlone)
	}
	p.queue.Remove(w)
	w.started <- nil
}

// askElsewhere asks the next worker of another host.
func (c *checkout) askElsewhere(ctx context.Context) (*api.Lease, error) {
	p := c.pool
	p.mu.Lock()
	known := p.roster
	p.mu.Unlock()
	if time.Since(known.at) >= elsewhereFresh {
		limited, cancel := context.WithTimeout(ctx, controlTimeout)
		defer cancel()
		status, err := p.dispatcher.config.Control.Status(limited, p.pool)
		if err != nil {
			return nil, err
		}
		known = roster{time.Now(), status, availability(status, p.dispatcher.config.HostID)}
		p.mu.Lock()
		p.roster = known
		p.mu.Unlock()
	}
	workers := workersElsewhere(known.status, p.dispatcher.config.HostID)
	if len(workers) == 0 {
		return nil, cmp.Or(c.refusal, error(api.Errorf(api.CodeBusy, "all are in use")))
	}
	return c.ask(ctx, workers[rand.IntN(len(workers))], nil)
}

// workersElsewhere are the workers in service on other hosts than this one.
func workersElsewhere(status api.PoolStatus, hostID string) (workers []string) {
	for _, e := range status.Workers {
		if !e.Gone && !e.Removing && e.Host != hostID && e.State.InService() {
			workers = append(workers, api.WorkerName(status.Pool, e.Slot))
		}
	}
	return workers
}

// leaseOf is the lease that the same request of the same holder got here and still has, or nil.
func (d *Dispatcher) leaseOf(pool string, o tempool.CheckoutOptions) *api.Lease {
	p := d.knownPool(pool)
	if p == nil || o.RequestID == "" {
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
