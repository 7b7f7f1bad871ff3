package pool

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
)

// Target says which workers may serve a call. AnyWorker, OneWorker and UnderLease make one.
type Target struct {
	kind      targetKind
	pool      string
	session   string
	priority  int
	leaseID   string
	authority lease.Authority // underLease
	worker    string          // aheadOfAll; inQueue: "" for any
	key       string          // hash of Request.Key

	ref       api.LeaseRef // underLease: what leaseID says
	invalid   error        // underLease: why leaseID says nothing
	preferred string       // inQueue: the session's worker, "" for none; set by locate
	arrived   arrival      // inQueue: of an earlier attempt; zero for none
	attempt   int          // from 1; set by Do
	upstream  *upstream    // underLease: set by locate
	guest     *Guest       // of a call that another gateway has forwarded; nil for any other
}

type targetKind int

const (
	inQueue    targetKind = iota // an open worker of the pool; the call queues for it
	underLease                   // the worker of a client's lease
	aheadOfAll                   // the worker as soon as it is open, ahead of all others that wait for it
)

// AnyWorker targets any worker of a pool on this host. Calls wait for a free one in the pool's queue, by priority. The
// worker that served the session last, if there is one, is preferred.
func AnyWorker(pool, session string, priority int) Target {
	return Target{kind: inQueue, pool: pool, session: session, priority: priority}
}

// OneWorker targets the worker with this number in its pool. Calls wait for it in the pool's queue, like those for any
// worker.
func OneWorker(pool string, slot int, session string, priority int) Target {
	return Target{kind: inQueue, pool: pool, worker: api.WorkerName(pool, slot), session: session, priority: priority}
}

// UnderLease targets the worker of a client's lease, for a caller with this authority.
func UnderLease(id string, a lease.Authority) Target {
	ref, invalid := api.ParseLeaseID(id)
	return Target{kind: underLease, pool: ref.Pool, leaseID: id, authority: a, ref: ref, invalid: invalid}
}

// callAttempts bounds how often a call is started whose worker ended before it saw the request.
const callAttempts = 3

// Call runs a call of this process under a client's lease. Errors are coded; Started reports whether the worker may
// have seen the request.
func (d *Dispatcher) Call(ctx context.Context, leaseID string, r Request) (*Response, error) {
	return response(d.Do(ctx, UnderLease(leaseID, lease.Operator), r, exchange))
}

// CallPool runs a call on any worker of the pool on this host; the call waits in the pool's queue for a free one.
// Errors are as Call's.
func (d *Dispatcher) CallPool(ctx context.Context, pool string, r Request) (*Response, error) {
	return response(d.Do(ctx, AnyWorker(pool, r.Session, r.Priority), r, exchange))
}

// Notify sends a request without an answer under a client's lease. It returns when the request was written; whether the
// worker acts on it is unknown. It counts as a call. A worker receives what Notify and Call send under one lease in
// their order, if each begins after the previous one returned. A worker of protocol none takes no notifications, which
// is CodeInvalid; other errors are as Call's.
func (d *Dispatcher) Notify(ctx context.Context, leaseID string, a lease.Authority, r Request) error {
	_, err := d.Do(ctx, UnderLease(leaseID, a), r, notify)
	return err
}

func response(c *Call, err error) (*Response, error) {
	if err != nil {
		return nil, err
	}
	return c.response, nil
}

// Do starts a call on a worker of the target and passes it to send, which must complete it. A call that is under no
// lease starts again, callAttempts times at most, when its worker ended before it saw the request. Do returns the last
// call that started, nil if none did, be it that r.Forward had it served on another host. Errors are as Call's.
func (d *Dispatcher) Do(ctx context.Context, t Target, r Request, send func(*Call, Request) error) (*Call, error) {
	if latest := time.Now().Add(d.callTimeout(t.pool)); r.Deadline.IsZero() || latest.Before(r.Deadline) {
		r.Deadline = latest
	}
	if len(r.Key) > api.MaxKey {
		return nil, api.Errorf(api.CodeInvalid, "the key has %d bytes; at most %d are allowed", len(r.Key), api.MaxKey)
	}
	var traced *callTrace
	if d.config.Tracer != nil {
		ctx, traced = d.trace(ctx, &t, &r)
	}
	if t.kind != inQueue || t.worker != "" {
		r.Forward = nil // only a call for any worker may go to another host
	}
	for t.attempt = 1; ; t.attempt++ {
		traced.begin()
		c, err := d.start(ctx, t, r)
		if err == errTaken { // it is never wrapped
			err = nil
		}
		traced.waited(c, err)
		if c == nil {
			traced.end(err)
			return nil, err
		}
		switch {
		case err != nil:
		case traced == nil:
			err = send(c, r)
		default:
			err = traced.send(c, r, send)
		}
		if !c.startsAgain(err) {
			traced.end(err)
			return c, err
		}
		t.arrived = c.arrived
	}
}

// startsAgain reports whether Do starts the call again that has ended with err: its worker has ended or was suspended,
// and it has not begun.
func (c *Call) startsAgain(err error) bool {
	return err != nil && c.mayStartAgain && !Started(err) &&
		(errors.Is(err, api.ErrWorkerCrashed) || errors.Is(err, api.ErrSuspended))
}

// Deadline is when a call of a pool that begins now must end: after timeout, if that is positive, and after
// call.timeout of the pool.
func (d *Dispatcher) Deadline(pool string, timeout time.Duration) time.Time {
	longest := d.callTimeout(pool)
	if timeout > 0 {
		longest = min(longest, timeout)
	}
	return time.Now().Add(longest)
}

// callTimeout is call.timeout of the pool, else defaultCallTimeout.
func (d *Dispatcher) callTimeout(pool string) time.Duration {
	if p := d.knownPool(pool); p != nil {
		if timeout := time.Duration(p.timeout.Load()); timeout > 0 {
			return timeout
		}
	}
	return defaultCallTimeout
}

// start is the one way for a call to start: it waits until a worker of the target has a free slot and puts the call in
// flight there.
func (d *Dispatcher) start(ctx context.Context, t Target, r Request) (*Call, error) {
	c := newCall(ctx, r)
	c.session, c.mayStartAgain = t.session, t.kind == inQueue && t.attempt < callAttempts
	if t.kind == inQueue && r.onStart == nil && !r.Unbuffered && !r.traced {
		c.prepare(r)
	}
	if err := d.place(c, &t); err != nil {
		c.cancel(nil)
		if c.upstream != nil && c.startsAgain(err) {
			return c, err
		}
		return nil, notStarted(err)
	}
	if r.onStart != nil {
		if err := r.onStart(c.Worker(), c.Incarnation()); err != nil {
			c.Complete(errNotSent(err))
			return nil, err
		}
	}
	return c, nil
}

// place puts the call in flight on a worker of the target, at once or after it waited.
func (d *Dispatcher) place(c *Call, t *Target) error {
	p, err := d.locate(c, t)
	if err != nil {
		return err
	}
	var w *waiter
	var admission admission
	if c.forward != nil && t.attempt == 1 {
		if home := p.home(c.ctx, c.binding.Key, c.binding.Headers); home != nil {
			err = c.sendTo(*home)
		}
	}
	for err == nil {
		if w, admission, err = p.tryStart(c, t); w == nil {
			break
		}
		_, err = w.wait(c.ctx)
		sent, _ := err.(*sentToPeer) // it is never wrapped
		if sent == nil {
			break
		}
		t.arrived = c.arrived
		err = c.sendTo(sent.to)
	}
	c.waited = admission != admitted
	if err == nil && w == nil && admission == unverified {
		err = d.verifyAndStart(c, t)
	}
	if t.kind == inQueue && t.guest == nil && err != errTaken {
		p.countRefusal(c, err, c.arrived)
	}
	switch {
	case err != nil:
		return err
	case !c.alone:
		err = c.awaitAlone()
	}
	if err == nil && t.session != "" {
		worker := c.Worker()
		d.BindSession(t.pool, t.session, worker, func(bound string, closed bool) bool {
			return bound == t.preferred && (bound == worker || !closed) // else it was moved meanwhile, and stays there
		})
	}
	return err
}

// locate finds the pool of the call's target, and the worker of a lease.
func (d *Dispatcher) locate(c *Call, t *Target) (*poolState, error) {
	if t.kind == inQueue && (t.priority < MinPriority || t.priority > MaxPriority) {
		return nil, api.Errorf(api.CodeInvalid, "priority is %d; it must be from %d to %d (default %d)", t.priority,
			MinPriority, MaxPriority, DefaultPriority)
	}
	if t.kind != underLease {
		if now := time.Now(); d.monitor.fenced(now) {
			return nil, errFenced(d.monitor.outage(now))
		}
	}
	switch t.kind {
	case underLease:
		if t.invalid != nil {
			return nil, t.invalid
		}
		if t.upstream = d.upstreamFor(t.ref); t.upstream == nil {
			return nil, d.verifier.Explain(c.ctx, t.leaseID, t.ref, d.config.HostID)
		}
		return t.upstream.pool, nil
	case aheadOfAll:
		if p := d.knownPool(t.pool); p != nil {
			return p, nil
		}
		return nil, errNoProcess(t.worker, d.config.HostID)
	}
	p, err := d.find(c.ctx, t.pool, t.worker)
	if err != nil && !(c.forward != nil && d.reachesAny(err)) {
		p.countRefusal(c, err, t.arrived)
		return nil, err
	}
	t.preferred = p.workerOf(t.session)
	return p, nil
}

// tryStart starts the call if a worker of the target admits it now. Else it returns the waiter of a queued call, or the
// admission that says what the call must wait for.
func (p *poolState) tryStart(c *Call, t *Target) (*waiter, admission, error) {
	now := time.Now()
	if t.kind == underLease { // the lock of its worker
		p.mu.Lock()
	} else if p = p.lock(); p == nil {
		return nil, rejected, ErrClosing
	}
	defer p.mu.Unlock()
	if p.dispatcher.closing.Load() {
		return nil, rejected, ErrClosing
	}
	if p.fencesLocked(t.kind, now) {
		return nil, rejected, errFenced(p.dispatcher.monitor.outage(now))
	}
	var err error
	if c.binding.Key != "" {
		if t.key, err = p.identifyLocked(c.binding.Key, c.binding.Headers); err != nil {
			return nil, rejected, err
		}
		c.key = t.key
	}
	u, admission, err := p.admitLocked(t, now)
	switch admission {
	case admitted:
		if t.guest != nil {
			c.waitedElsewhere = max(0, t.guest.Waited)
		}
		var l *activeLease
		if t.kind == underLease {
			l = u.lease
		}
		u.startLocked(c, l, now)
		c.queued()
	case mustQueue:
		w, err := p.enqueueLocked(c, t, now)
		return w, admission, err
	}
	return nil, admission, err
}

// awaitAlone waits until the calls from before the lease have ended and the process of the call's key runs, and
// completes the call if ctx ends first.
func (c *Call) awaitAlone() error {
	u, begun := c.upstream, false
	err := u.pool.await(c.ctx, func() bool {
		u.yieldLocked(c)
		begun = c.inUse || (c.lease == nil || u.aloneLocked(c.lease)) && u.beginUseLocked(c)
		return begun || u.is(gone)
	})
	switch {
	case err != nil:
		err = c.cause()
	case !begun:
		err = api.Errorf(api.CodeWorkerCrashed, "the process of %s ended before the call began", u.worker)
	default:
		return nil
	}
	c.Complete(errNotSent(err))
	return err
}

// Complete is the one way for a call to end: it removes the call from those in flight, unless its answer has, and ends
// its context. err is the result of the call.
func (c *Call) Complete(err error) {
	c.finish(err)
	c.cancel(nil)
}

// finish removes the call from those in flight and gives its slot to queued calls. The reader of the worker's
// connection calls it as soon as the answer has come, so that the worker has its next request before the caller of the
// last one runs.
func (c *Call) finish(err error) {
	u, p, now := c.upstream, c.upstream.pool, time.Now()
	p.mu.Lock()
	if _, running := u.calls[c]; !running {
		p.mu.Unlock()
		return
	}
	u.completeLocked(c, err, now)
	if !u.is(gone) && c.refusedLocked(err) {
		p.markGoneLocked(u) // else it would get every further call, for none is in flight on it
	}
	var buffer [2]*waiter // for the usual one, without an allocation
	begun := buffer[:0]
	begun = p.startQueuedLocked(now, begun)
	p.changes.Announce()
	p.mu.Unlock()
	for _, w := range begun {
		w.send()
	}
	if err != nil && !c.startsAgain(err) {
		c.emitFailure(err, now)
	}
}

// Execute is CallPool, or Call if the request names a lease, for an activity. queued is called, under a lock, as soon
// as the call is queued or has started. started is called before the request is sent; its error is the call's and keeps
// the request from being sent.
func (d *Dispatcher) Execute(ctx context.Context, pool string, r api.ExecuteRequest, queued func(),
	started func(worker string, incarnation int64) error) ([]byte, error) {
	request := Request{Method: r.Method, Session: r.Session, Body: r.Params, onQueued: queued, onStart: started}
	target := AnyWorker(pool, r.Session, DefaultPriority)
	if r.Lease != "" {
		target = UnderLease(r.Lease, lease.Operator)
	}
	response, err := response(d.Do(ctx, target, request, exchange))
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// FreeSlots is the number of calls of a pool that could start on this host now, in addition to the queued ones. If it
// is 0, changed is closed when that may have changed; it misses workers that a client checks in without this gateway.
func (d *Dispatcher) FreeSlots(pool string) (free int, changed <-chan struct{}) {
	p := d.knownPool(pool)
	if p == nil {
		return 0, nil
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !d.closing.Load() && !p.fencesLocked(inQueue, now) {
		for _, u := range p.order {
			key := "" // of a process that is clean, or becomes so for a key that waits
			if u.byKey() && (!u.use.begun || u.idleKeyLocked()) {
				key = cmp.Or(u.use.owner.key, "any")
			}
			if load, open := u.loadLocked(key, now); open {
				free += u.capacity() - load
			}
		}
		free -= p.queue.Len() + p.queue.Clients()*max(1, p.spec.Pool.MaxInflight) // a client takes a whole worker
	}
	if free > 0 {
		return free, nil
	}
	return 0, p.changes.Next()
}
