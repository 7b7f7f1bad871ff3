package pool

import (
	"time"

	"github.com/tempool/tempool/api"
)

// enqueueLocked adds the call to the queue.
func (p *poolState) enqueueLocked(c *Call, t *Target, now time.Time) (*waiter, error) {
	if err := p.rateExhaustedLocked(now); err != nil {
		return nil, err
	}
	limits := p.spec.Queue
	again := t.arrived.turn.seq > 0 // its worker ended before it began, or its session was held
	ahead := t.kind == aheadOfAll
	if !ahead && p.queue.Len() >= limits.Size && !again && !p.displaceLocked(c.client) {
		return nil, api.Errorf(api.CodeQueueFull, "the queue of pool %s is full: %d calls wait (queue.size)", p.pool,
			limits.Size).After(time.Second)
	}
	w := newWaiter(p, c, t)
	w.queuedAt, w.timeout = now, limits.Timeout.D()
	switch {
	case again:
		w.queuedAt = t.arrived.at
	case t.guest != nil:
		p.queue.seq++
		w.queuedAt = now.Add(-min(max(t.guest.Waited, 0), w.timeout))
		w.turn = turnOf(w.queuedAt, w.priority, w.timeout, p.queue.seq)
		w.timeout = min(w.timeout, now.Sub(w.queuedAt)+t.guest.Patience)
	case ahead:
		w.turn, w.timeout = turn{seq: 1}, maxHookWait // its caller bounds the wait
	}
	p.queue.Push(w)
	p.peaks.observe(p.waitingLocked(), now)
	c.arrived = arrival{w.queuedAt, w.turn}
	c.queued()
	if p.queue.Clients() > 0 { // who may wait for another worker than this call
		p.dispatchQueueLocked(now)
	}
	if p.nextTick.Sub(now) > queueTick {
		p.notify()
	}
	if c.elsewhere != nil && p.dispatcher.config.Elsewhere != nil {
		p.dispatcher.config.Elsewhere.Waits(p.pool)
	}
	return w, nil
}

// displaceLocked takes from a full queue the last call of the client that has the most calls in it, for a call of a
// client that has fewer even then. It reports whether it did.
func (p *poolState) displaceLocked(client string) bool {
	last := p.queue.shares.displaceable(client)
	if last == nil || !p.queue.Remove(last) {
		return false
	}
	last.started <- api.Errorf(api.CodeQueueFull,
		"the queue of pool %s is full, and this client has more calls in it than any other (queue.size)",
		p.pool).After(time.Second)
	return true
}

// wait waits until the queued call has started.
func (w *waiter) wait() (failure error) {
	p, c := w.pool, w.call
	defer func() {
		until := time.Now()
		if failure == nil { // its answer may have come already
			p.mu.Lock()
			until = c.startedAt
			p.mu.Unlock()
		}
		p.stats.waits.observe(until.Sub(w.queuedAt))
		w.recycle()
	}()
	w.timer.Reset(time.Until(w.queuedAt.Add(w.timeout)))
	var reason error
	select {
	case err := <-w.started:
		return err
	case c.first = <-c.events():
		return nil
	case <-c.ctx.Done():
		reason = c.cause()
	case <-w.timer.C:
		who, cause := "worker of pool "+p.pool, ""
		if w.worker != "" {
			who = "process of " + w.worker
		}
		if p.dispatcher.monitor.lost.Load() {
			cause = "; Temporal does not answer, so no worker can be started"
		}
		reason = api.Errorf(api.CodeQueueTimeout, "no %s was free within %s (queue.timeout)%s", who, w.timeout,
			cause).After(time.Second)
	}
	p.mu.Lock()
	removed := p.queue.Remove(w)
	p.mu.Unlock()
	if removed {
		return reason
	}
	if c.exchange != nil && !c.exchange.Withdraw() {
		return nil // it was sent, and ends on its own
	}
	err := <-w.started
	if err == nil { // it started at the moment it was given up
		c.Complete(errNotSent(reason))
		return reason
	}
	if heldBy(err) != nil { // it must not be tried again
		p.mu.Lock()
		p.heldCalls--
		p.mu.Unlock()
		return reason
	}
	return err
}

// startQueuedLocked starts queued calls while workers have free slots and appends them to begun. The caller sends them
// without the lock. A client gets a worker for itself as soon as it has a free slot.
func (p *poolState) startQueuedLocked(now time.Time, begun []*waiter) []*waiter {
	if p.fencesLocked(now) {
		return begun
	}
	for p.waitingLocked() > 0 {
		w, u := p.nextQueuedLocked(now)
		if u == nil {
			break
		}
		if w.checkout {
			u.leases.Reserved, w.reserved = true, u
			p.queue.Remove(w)
			w.started <- nil
			continue
		}
		if p.startLocked(w.call, u, nil, now) != nil {
			break
		}
		p.queue.Remove(w)
		begun = append(begun, w)
	}
	return begun
}

// nextQueuedLocked returns the first of those who wait that can be served now, and its worker; no worker if none can.
func (p *poolState) nextQueuedLocked(now time.Time) (first *waiter, its *upstream) {
	for worker := range p.queue.byWorker {
		if w := p.queue.PeekFor(worker); first == nil || w.before(first) {
			if u := p.withSlotLocked(worker, now); u != nil {
				first, its = w, u
			}
		}
	}
	// without Temporal a client would close the worker in vain
	if w := p.queue.PeekClient(); w != nil && !p.dispatcher.monitor.lost.Load() && (first == nil || w.before(first)) {
		if u := p.chooseLocked(w.preferred, true, now); u != nil {
			first, its = w, u
		}
	}
	if w := p.queue.Peek(); w != nil && (first == nil || w.before(first)) {
		if u := p.chooseLocked(w.preferred, false, now); u != nil {
			first, its = w, u
		}
	}
	if its != nil {
		p.takeTurnLocked(its)
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
	if x := w.call.exchange; x != nil && x.Begin(w.call.conn) {
		return
	}
	w.started <- nil
}
