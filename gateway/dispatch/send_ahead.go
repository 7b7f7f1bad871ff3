package dispatch

import (
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

// A worker that serves one call at a time would sleep after each answer until the gateway has read that and sent the next call. While calls wait, the
// gateway therefore sends one call more to a worker that promises to begin it only after the answer to the call before (wire.Hello.Serial). Such a call
// is in flight in all that ends, drains, suspends or returns a worker or its lease. But it has not started: its wait for a worker goes on until the
// worker comes to it, with queue.timeout, and it returns to its place in the queue if the worker ends before.

const (
	// shortCall bounds the calls behind which another one may wait.
	shortCall = time.Millisecond
	// shortCalls is how many short calls must have ended before calls of a pool are sent ahead, and maxBrevity how many of them count.
	shortCalls = 1000
	maxBrevity = 2 * shortCalls
	// costOfLong is how many short calls each millisecond of a longer call outweighs. A worker that is displaced from its core for some milliseconds
	// changes little; a call of tens of them ends sending ahead for a while.
	costOfLong = 50
	// maxAheadBody bounds the body of a call sent ahead, in bytes, so that answers to host calls and cancels do not wait behind it.
	maxAheadBody = 16 << 10
	// aheadMargin is the time that a lease must have left.
	aheadMargin = time.Second
)

// brevity says how short the calls of a pool have been lately, from 0 to maxBrevity.
type brevity int

// after is the brevity after a call that took so long.
func (b brevity) after(took time.Duration) brevity {
	if took < shortCall {
		return min(b+1, maxBrevity)
	}
	milliseconds := min(took/time.Millisecond, maxBrevity)
	return max(b-brevity(milliseconds)*costOfLong, 0)
}

// aheadSituation is a worker that has just answered a call, and the first call of the queue.
type aheadSituation struct {
	brief       bool // the calls of the pool have been short
	serial      bool // the worker begins no call before it has answered the one before
	capacity    int  // max_inflight
	inFlight    int  // on the worker, with cancelled calls that it has not given up
	serves      bool // the worker is in service, under a lease of the Dispatcher's own
	leaseLeft   time.Duration
	leaseDue    bool // the lease is to go back between two calls
	reserved    bool // a hook waits for the worker
	clients     int  // that wait for a lease of any worker
	mayGo       bool // the first call is small, for any worker, and of no session
	boundFirst  bool // a call for this worker alone is before it
	callerSends bool // the call in flight is not sent by the goroutine that frees the worker: it may be sent later
}

// sendsAhead reports whether the first call of the queue is sent to the worker behind the call in flight.
func (s aheadSituation) sendsAhead() bool {
	return s.brief && s.serial && s.capacity == 1 && s.inFlight == 1 && s.serves && s.leaseLeft > aheadMargin && !s.leaseDue && !s.reserved && s.clients == 0 &&
		s.mayGo && !s.boundFirst && !s.callerSends
}

// startAheadLocked puts the first call of the queue in flight behind the one that the worker serves, if it may go there. The caller sends it.
func (u *upstream) startAheadLocked(now time.Time) *waiter {
	p, l := u.pool, u.lease
	w := p.queue.Peek()
	if w == nil || l == nil || u.conn == nil || p.brevity < p.dispatcher.shortCalls || p.fencesLocked(now) {
		return nil
	}
	bound := p.queue.PeekFor(u.worker)
	s := aheadSituation{
		brief: true, serial: wire.ServesSerially(u.conn), capacity: u.capacity(), inFlight: u.currentLoadLocked(), serves: u.servesLocked(now),
		leaseLeft: min(l.expires.Sub(now), l.refuseAfter.Sub(now)), leaseDue: l.returnDue(now), reserved: p.reserved[u.worker] > 0,
		clients: len(p.clients.waiting), mayGo: w.call.mayGoAhead, boundFirst: bound != nil && bound.before(w), callerSends: u.callerSends > 0,
	}
	if !s.sendsAhead() || p.startLocked(w.call, u, now) != nil {
		return nil
	}
	p.queue.Remove(w)
	p.takeTurnLocked(u)
	w.call.ahead, u.ahead = true, w.call
	return w
}

// sendAhead sends the request of a call that startAheadLocked has put in flight. If that cannot be, the call is one in flight like any other, and its
// caller sends it.
func (w *waiter) sendAhead() {
	c := w.call
	if !c.exchange.BeginAhead(c.upstream.conn) {
		c.begin()
		w.started <- nil
	}
}

// begin records that the worker begins a call that was sent ahead.
func (c *Call) begin() {
	now, p := time.Now(), c.upstream.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ahead && !c.completed {
		c.ahead, c.upstream.ahead, c.startedAt = false, nil, now
	}
}

// aheadLocked counts the calls in flight that have not started.
func (u *upstream) aheadLocked() int {
	if u.ahead != nil {
		return 1
	}
	return 0
}

// errStillAhead ends a call that its worker has not begun within queue.timeout. The worker may begin it before it reads the cancel.
func (c *Call) errStillAhead(timeout time.Duration) *api.Error {
	return api.Errorf(api.CodeDeadlineExceeded, "%s was sent to %s, which has not ended the call before it within %s (queue.timeout); whether it still begins is unknown",
		c.method, c.upstream.worker, timeout)
}
