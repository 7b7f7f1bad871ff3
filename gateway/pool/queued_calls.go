package pool

import (
	"context"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
)

// enqueueLocked adds the call to the queue.
func (p *poolState) enqueueLocked(c *Call, t *Target, now time.Time) (*waiter, error) {
	if t.guest != nil && t.guest.Patience <= 0 && t.key == "" {
		return nil, api.Errorf(api.CodeBusy, "no worker of pool %s is free on this host", p.pool).After(waitHint)
	}
	if err := p.rateExhaustedLocked(now); err != nil {
		return nil, err
	}
	limits := p.spec.Queue
	again := t.arrived.seq > 0 // its worker ended before it began, or another host did not take it
	ahead := t.kind == aheadOfAll
	if !ahead && p.queue.Len() >= limits.Size && !again && !p.displaceLocked(c.client) {
		return nil, api.Errorf(api.CodeQueueFull, "the queue of pool %s is full: %d calls wait (queue.size)", p.pool,
			limits.Size).After(time.Second)
	}
	w := newWaiter(p, c, t)
	if w.key != "" && !p.mayBindLocked(w.key) {
		w.forward = nil // it waits for the processes of its key
	}
	w.timeout = limits.Timeout.D()
	switch {
	case t.guest != nil:
		p.welcomeLocked(w, t.priority, *t.guest, now)
	case again:
	case ahead:
		w.arrival, w.timeout = arrival{at: now, seq: 1}, maxHookWait // its caller bounds the wait
	default:
		w.arrival = p.queue.arrive(now, t.priority, w.timeout)
	}
	if t.kind == inQueue && p.held[t.session] != nil {
		w.held = t.session
	}
	p.waitLocked(w, now)
	c.arrived = w.arrival
	c.queued()
	return w, nil
}

// keyPatience is the least time that a guest with a key waits.
const keyPatience = time.Second

// welcomeLocked has a guest arrive, which stands in the queue as if it had waited here, for as long as it may wait.
func (p *poolState) welcomeLocked(w *waiter, priority int, g Guest, now time.Time) {
	p.queue.seq++
	if w.key != "" { // a key that gives way takes the time of a start
		g.Patience = max(g.Patience, keyPatience)
	}
	w.arrival = arrivalOf(now.Add(-max(g.Waited, 0)), priority, p.specLocked().Queue.Timeout.D(), p.queue.seq)
	w.timeout = now.Sub(w.at) + g.Patience
}

// waitLocked puts a call or a client in its line.
func (p *poolState) waitLocked(w *waiter, now time.Time) {
	p.queue.Push(w)
	if p.queue.Clients() > 0 || w.key != "" { // who may wait for another worker than those before
		p.dispatchQueueLocked(now)
	}
	p.observeWaitingLocked(now)
	if p.nextTick.Sub(now) > queueTick {
		p.notify()
	}
	p.askPeersLocked()
}

// askPeersLocked lets other hosts serve those who wait.
func (p *poolState) askPeersLocked() {
	if peers := p.dispatcher.config.Peers; peers != nil && p.waitingLocked() > 0 {
		peers.Waits(p.pool)
	}
}

// displaceLocked takes from a full queue the last call of the client that has the most calls in it, for a call of a
// client that has fewer even then. It reports whether it did.
func (p *poolState) displaceLocked(client string) bool {
	last := p.queue.shares.displaceable(client)
	if last == nil {
		return false
	}
	p.refuseLocked(last, api.Errorf(api.CodeQueueFull,
		"the queue of pool %s is full, and this client has more calls in it than any other (queue.size)",
		p.pool).After(time.Second))
	return true
}

// refuseLocked takes a waiter out of the queue because of err.
func (p *poolState) refuseLocked(w *waiter, err error) {
	p.queue.Remove(w)
	w.started <- err
}

// expireQueueLocked refuses those who have waited too long, and returns the time to the next one that will have.
func (p *poolState) expireQueueLocked(now time.Time) time.Duration {
	w := p.queue.expiring.First()
	for ; w != nil && !now.Before(w.expires()); w = p.queue.expiring.First() {
		p.refuseLocked(w, w.errExpired())
	}
	if w == nil {
		return idleTick
	}
	return w.expires().Sub(now)
}

// errExpired is the error of a call that has waited too long.
func (w *waiter) errExpired() error {
	who, cause := "worker of pool "+w.pool.pool, ""
	if w.worker != "" {
		who = "process of " + w.worker
	}
	if w.key != "" && !w.pool.mayBindLocked(w.key) {
		cause = "; its key has as many processes as isolation.max_per_key allows"
	}
	if w.held != "" {
		cause = "; the process that held its session has not released it"
	}
	if w.pool.dispatcher.monitor.lost.Load() {
		cause += "; Temporal does not answer, so no worker can be started"
	}
	return api.Errorf(api.CodeQueueTimeout, "no %s was free within %s (queue.timeout)%s", who, w.timeout,
		cause).After(time.Second)
}

// wait waits until the call has started, or the client may ask a worker for its lease, which wait returns. The waiter
// must not be used any more.
func (w *waiter) wait(ctx context.Context) (reserved *upstream, err error) {
	defer w.recycle()
	p, c := w.pool, w.call
	var answer <-chan struct{} // to a request that another goroutine has sent
	if c != nil {
		if c.exchange != nil {
			answer = c.exchange.Ready()
		}
		defer func() { p.stats.waits.Observe(w.waited(err).Seconds()) }()
	}
	select {
	case err = <-w.started:
		return w.reserved, err
	case <-answer:
		return nil, nil
	case <-ctx.Done():
	}
	reason := context.Cause(ctx)
	if c != nil {
		reason = c.cause()
	}
	p.mu.Lock()
	removed := p.queue.Remove(w)
	p.mu.Unlock()
	if removed {
		return nil, reason
	}
	if c != nil && c.exchange != nil && !c.exchange.Withdraw() {
		return nil, nil // it was sent, and ends on its own
	}
	if err = <-w.started; err != nil {
		return nil, err
	}
	if c != nil { // it started at the moment it was given up
		c.Complete(errNotSent(reason))
	} else {
		p.mu.Lock()
		defer p.mu.Unlock()
		w.reserved.unreserveLocked()
	}
	return nil, reason
}

// waited is how long a call has waited that ends with err. One that has started may have its answer already.
func (w *waiter) waited(err error) time.Duration {
	if err != nil {
		return time.Since(w.at)
	}
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	return w.call.startedAt.Sub(w.at)
}

// startQueuedLocked starts queued calls while workers have free slots and appends them to begun. The caller sends them
// without the lock. A client gets a worker for itself as soon as it has a free slot.
func (p *poolState) startQueuedLocked(now time.Time, begun []*waiter) []*waiter {
	if p.fencesLocked(inQueue, now) {
		return begun
	}
	for p.waitingLocked() > 0 {
		w, u := p.nextQueuedLocked(now)
		if u == nil {
			break
		}
		if w.call == nil {
			u.leases.Reserved, u.intended, w.reserved = true, w.key, u
			p.queue.Remove(w)
			w.started <- nil
			continue
		}
		u.startLocked(w.call, nil, now)
		p.queue.Remove(w)
		begun = append(begun, w)
	}
	p.makeRoomLocked(now, 0)
	return begun
}

// nextQueuedLocked returns the first of those who wait that can be served now, and its worker; no worker if none can.
func (p *poolState) nextQueuedLocked(now time.Time) (first *waiter, its *upstream) {
	lost := p.dispatcher.monitor.lost.Load()
	keys, clean := p.keysLocked(now)
	for l, waiting := range p.queue.lines {
		w := waiting.First()
		if w == nil || l.session != "" || first != nil && !w.before(first.arrival) ||
			l.key != "" && !clean && !slices.Contains(keys, l.key) || // else each line would look at each worker
			l.clients && lost { // without Temporal a client would close the worker and get no lease
			continue
		}
		if u := p.chooseLocked(w.worker, w.preferred, w.key, l.clients, now); u != nil {
			first, its = w, u
		}
	}
	if its != nil {
		p.countChoiceLocked(its)
	}
	return first, its
}

// dispatchQueueLocked starts queued calls; their callers send the requests.
func (p *poolState) dispatchQueueLocked(now time.Time) {
	for _, w := range p.startQueuedLocked(now, nil) {
		w.started <- nil
	}
}

// send sends the request of a call that has started, or wakes its caller to do so.
func (w *waiter) send() {
	if x := w.call.exchange; x != nil && w.call.alone && x.Begin(w.call.conn) {
		return
	}
	w.started <- nil
}
