package wire

import (
	"context"
	"sync"
	"time"
)

// callEntry is an entry for a call in flight. conn.mu guards its fields.
type callEntry struct {
	index       uint32
	id          uint32 // of the call; 0 if the entry is free
	generation  uint32
	exchange    *Exchange    // nil once the caller has stopped waiting
	late        LateObserver // of that caller; nil for none
	method      string
	headers     map[string]string
	trace       Trace
	ctx         context.Context
	cancelTimer *time.Timer // runs from the cancel to the response
}

// Exchange is a call as its caller and the reader share it (exchange.go). If MaxInflight calls are in flight, the
// goroutine that completes one of them sends the request of the next: the worker does not wait until the next caller's
// goroutine is scheduled.
type Exchange struct {
	ctx       context.Context
	request   Request
	events    chan Event
	abandoned chan struct{} // closed by a caller that returns without the final event
	observer  Observer      // may be nil

	// Guarded by conn.mu.
	call     *callEntry // nil while the exchange waits
	id       uint32
	queued   bool
	begun    bool      // by Begin: the caller may not know its Conn yet
	overflow overflow  // events for which events has no room
	next     *Exchange // in the queue

	// mu is held while any goroutine sends the request, so that the caller cannot return and change it.
	mu        sync.Mutex
	sent      bool  // guarded by mu: an attempt was made
	withdrawn bool  // guarded by mu: must not be sent any more
	offset    int64 // guarded by mu: of the request in the stream; negative if it could not be encoded
	conn      *Conn // guarded by mu: set by Begin
}

// Event is a chunk, the end of a call, or only a wake-up. Callers pass it to Do.
type Event struct {
	data    []byte            // a chunk, or the payload of the response
	headers map[string]string // of the response
	err     error
	isChunk bool // data may be empty
	final   bool
}

// maxCallID bounds the ids of calls: they fit any language's signed 32-bit integers and leave room for the ids of
// pings.
const maxCallID = 1 << 30

// eventQueue is the capacity of a caller's channel. If it is full, the reader, and through it the worker, waits with
// MaxInflight 1; otherwise further events go to the overflow.
const eventQueue = 8

var exchangePool = sync.Pool{New: func() any {
	return &Exchange{events: make(chan Event, eventQueue),
		abandoned: make(chan struct{})}
}}

// recycle returns an exchange to the pool. Its final event must have been received: then no other goroutine uses it,
// except that the sender may not have unlocked mu yet.
func recycle(x *Exchange) {
	x.mu.Lock()
	x.ctx, x.request, x.call, x.id, x.observer, x.begun, x.conn, x.sent, x.withdrawn, x.offset =
		nil, Request{}, nil, 0, nil, false, nil, false, false, -1
	x.overflow = overflow{}
	x.mu.Unlock()
	exchangePool.Put(x)
}

// waitQueue is a FIFO queue of exchanges.
type waitQueue struct{ first, last *Exchange }

func (q *waitQueue) push(x *Exchange) {
	x.queued = true
	if q.first == nil {
		q.first = x
	} else {
		q.last.next = x
	}
	q.last = x
}

func (q *waitQueue) pop() *Exchange {
	x := q.first
	if x != nil {
		q.first, x.next, x.queued = x.next, nil, false
	}
	return x
}

func (q *waitQueue) remove(x *Exchange) {
	var previous *Exchange
	for e := q.first; e != x; e = e.next {
		previous = e
	}
	if previous == nil {
		q.first = x.next
	} else {
		previous.next = x.next
	}
	if q.last == x {
		q.last = previous
	}
	x.next, x.queued = nil, false
}

// admit takes a free entry for the call, or queues the call. send means that the caller must send the request.
func (c *Conn) admit(x *Exchange) (send bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusalLocked(); err != nil {
		return false, err
	}
	if c.usedLocked() < c.o.MaxInflight {
		c.takeFreeLocked(x)
		return true, nil
	}
	c.waiting.push(x)
	return false, nil
}

// tryAdmit takes an entry for the call if one is free.
func (c *Conn) tryAdmit(x *Exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusalLocked() != nil || c.usedLocked() >= c.o.MaxInflight {
		return false
	}
	x.begun = true
	c.takeFreeLocked(x)
	return true
}

// usedLocked counts the calls in flight.
func (c *Conn) usedLocked() int { return len(c.calls) - len(c.free) }

func (c *Conn) takeFreeLocked(x *Exchange) {
	n := len(c.free)
	call := c.free[n-1]
	c.free = c.free[:n-1]
	c.inFlight.Add(1)
	c.assignLocked(call, x)
}

// assignLocked assigns the entry to a call under a new id.
func (c *Conn) assignLocked(call *callEntry, x *Exchange) {
	if call.generation++; call.generation<<c.shift >= maxCallID {
		call.generation = 1 // id 0 means no call
	}
	call.id = call.generation<<c.shift | call.index
	call.exchange, call.ctx, call.method, call.headers, call.trace =
		x, x.ctx, x.request.Method, x.request.Headers, x.request.Trace
	x.call, x.id = call, call.id
}

// releaseLocked ends the call of an entry and assigns the entry to the next in the queue, which it returns for
// sendNext.
func (c *Conn) releaseLocked(call *callEntry) (next *Exchange) {
	call.id, call.exchange, call.late, call.ctx, call.method, call.headers, call.trace = 0, nil, nil, nil, "", nil, Trace{}
	if call.cancelTimer != nil {
		call.cancelTimer.Stop()
		call.cancelTimer = nil
	}
	if c.err == nil {
		if next := c.waiting.pop(); next != nil {
			c.assignLocked(call, next)
			return next
		}
	}
	c.inFlight.Add(-1)
	c.free = append(c.free, call)
	return nil
}

// sendNext sends the request that releaseLocked returned, if any. If that fails, the call fails and its entry goes to
// the next in the queue.
func (c *Conn) sendNext(x *Exchange) {
	for x != nil {
		x.mu.Lock()
		if x.withdrawn {
			x.mu.Unlock()
			x = c.releaseUnsent(x)
			continue
		}
		err := c.sendRequest(x)
		x.mu.Unlock()
		if err == nil {
			return
		}
		next := c.releaseUnsent(x)
		c.deliver(x, Event{err: err, final: true})
		x = next
	}
}

// failUnsent fails a call that could not be sent, and sends the next.
func (c *Conn) failUnsent(x *Exchange, err error) {
	next := c.releaseUnsent(x)
	c.deliver(x, Event{err: err, final: true})
	c.sendNext(next)
}

// releaseUnsent releases the entry of a call that was not sent, and returns the next call to send.
func (c *Conn) releaseUnsent(x *Exchange) *Exchange {
	c.mu.Lock()
	if x.call.id != x.id { // the worker responded to a request that it did not get
		c.mu.Unlock()
		return nil
	}
	next := c.releaseLocked(x.call)
	c.mu.Unlock()
	return next
}

// lookupLocked finds a call in flight by its id; nil if there is none.
func (c *Conn) lookupLocked(id uint32) *callEntry {
	index := id & (1<<c.shift - 1)
	if id == 0 || int(index) >= len(c.calls) || c.calls[index].id != id {
		return nil
	}
	return &c.calls[index]
}

// complete ends a call with its response; false if no call with this id is in flight. Only the reader calls it.
func (c *Conn) complete(id uint32, resp Response, err error) bool {
	c.mu.Lock()
	call := c.lookupLocked(id)
	if call == nil {
		c.mu.Unlock()
		return false
	}
	x, late := call.exchange, call.late
	var observer Observer
	if x != nil {
		observer = x.observer
	}
	next := c.releaseLocked(call)
	others := c.inFlight.Load()
	c.mu.Unlock()
	c.sendNext(next) // first, since the worker is idle until then
	if observer != nil {
		observer.Answered(err)
	}
	if late != nil {
		late.AnsweredLate(err)
	}
	if x != nil {
		c.deliver(x, Event{data: resp.Payload, headers: resp.Headers, err: err, final: true})
		c.yieldToCaller = next == nil && c.inFlight.Load() <= others
	}
	return true
}

// deliverChunk passes a chunk to its call; false if no call with this id is in flight.
func (c *Conn) deliverChunk(id uint32, data []byte) bool {
	c.mu.Lock()
	call := c.lookupLocked(id)
	if call == nil {
		c.mu.Unlock()
		return false
	}
	x := call.exchange
	if x == nil || c.o.MaxInflight == 1 {
		c.mu.Unlock()
		if x != nil {
			c.deliver(x, Event{data: data, isChunk: true})
		}
		return true
	}
	if exceeded := c.overflowLocked(x, Event{data: data, isChunk: true}); !exceeded {
		c.mu.Unlock()
		return true
	}
	cancel := c.cancelLocked(call)
	c.mu.Unlock()
	c.sendCancel(cancel)
	return true
}

// deliver passes the final event to the caller, or with MaxInflight 1 a chunk; then it waits while the channel is full.
func (c *Conn) deliver(x *Exchange, e Event) {
	if c.o.MaxInflight > 1 {
		c.mu.Lock()
		c.overflowLocked(x, e)
		c.mu.Unlock()
		return
	}
	select {
	case x.events <- e:
		return
	default:
	}
	select {
	case x.events <- e:
	case <-x.abandoned:
	case <-c.done:
	}
}

// abandonResult is the state of a call whose caller stops waiting.
type abandonResult int

const (
	alreadyAnswered abandonResult = iota // the final event is there or about to be
	neverSent                            // nothing was or will be sent
	// the call stays in flight; the Conn breaks if the worker does not respond to the cancel
	cancelSent
)

// abandon removes the caller from its call, which it cancels if the request was sent.
func (c *Conn) abandon(x *Exchange) abandonResult {
	c.mu.Lock()
	if x.queued {
		c.waiting.remove(x)
		c.mu.Unlock()
		return neverSent
	}
	c.mu.Unlock()
	x.mu.Lock()
	sent := x.sent
	x.withdrawn = !sent
	x.mu.Unlock()
	if !sent {
		return neverSent
	}
	c.mu.Lock()
	call, id := x.call, x.id
	if c.err != nil || x.overflow.exceeded {
		c.mu.Unlock()
		return cancelSent
	}
	if call.id != id {
		c.mu.Unlock()
		return alreadyAnswered
	}
	cancel := c.cancelLocked(call)
	c.mu.Unlock()
	c.sendCancel(cancel)
	return cancelSent
}

// cancelLocked removes the caller from its call and returns the cancel message for sendCancel. The Conn ends unless the
// worker answers the call within CancelGrace; after half of that, the codec's late message is sent.
func (c *Conn) cancelLocked(call *callEntry) []byte {
	id, method := call.id, call.method
	call.late, _ = call.exchange.observer.(LateObserver)
	call.exchange, call.ctx, call.headers = nil, nil, nil
	now, late := c.codec.cancel(id, method)
	expired := func() {
		c.mu.Lock()
		due := call.id == id
		c.mu.Unlock()
		if due {
			c.fail(ErrUnanswered)
		}
	}
	if late == nil {
		call.cancelTimer = time.AfterFunc(c.o.CancelGrace, expired)
		return now
	}
	call.cancelTimer = time.AfterFunc(c.o.CancelGrace/2, func() {
		c.mu.Lock()
		due := call.id == id && c.err == nil
		if due {
			call.cancelTimer = time.AfterFunc(c.o.CancelGrace/2, expired)
		}
		c.mu.Unlock()
		if due {
			c.sendCancel(late)
		}
	})
	return now
}

// sendCancel sends a cancel message, which may be empty.
func (c *Conn) sendCancel(cancel []byte) {
	if len(cancel) > 0 {
		c.out.send(cancel, nil) // if this fails, the cancel timer ends the Conn
	}
}

// mayHaveStarted reports whether the worker may have begun the call, for any byte of the request may have reached it.
func (c *Conn) mayHaveStarted(x *Exchange) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sent && x.offset >= 0 && c.out.mayHaveLeft(x.offset)
}
