package wire

import (
	"context"
	"errors"
	"time"
)

// callEntry is a place for a call in flight. While it is free it is in conn.free, and its id is 0; conn.mu guards the
// fields of one that is taken.
type callEntry struct {
	index       uint32
	id          uint32 // of the call
	generation  uint32
	exchange    *Exchange    // nil once the caller has stopped waiting
	late        LateObserver // of that caller; nil for none
	method      string
	headers     map[string]string
	trace       Trace
	ctx         context.Context
	cancelTimer *time.Timer // runs from the cancel to the response
}

// maxCallID bounds the ids of calls: they fit any language's signed 32-bit integers and leave room for the ids of
// pings.
const maxCallID = 1 << 30

var errNoPlace = errors.New("as many calls as the worker takes are in flight")

// take gives a place that was received from c.free to a call, under a new id. If c takes none, the place is free again.
// x.mu is held.
func (c *Conn) take(call *callEntry, x *Exchange) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusalLocked(); err != nil {
		c.free <- call
		return err
	}
	if call.generation++; call.generation<<c.shift >= maxCallID {
		call.generation = 1 // id 0 means no call
	}
	call.id = call.generation<<c.shift | call.index
	call.exchange, call.ctx, call.method, call.headers, call.trace =
		x, x.ctx, x.request.Method, x.request.Headers, x.request.Trace
	x.conn, x.call, x.id = c, call, call.id
	return nil
}

// releaseLocked ends the call of a place, which is free again.
func (c *Conn) releaseLocked(call *callEntry) {
	call.id, call.exchange, call.late, call.ctx, call.method, call.headers, call.trace = 0, nil, nil, nil, "", nil, Trace{}
	if call.cancelTimer != nil {
		call.cancelTimer.Stop()
		call.cancelTimer = nil
	}
	c.free <- call
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
	c.releaseLocked(call)
	others := c.InFlight()
	c.mu.Unlock()
	if observer != nil {
		observer.Answered(err) // first, since the worker is idle until it has the next request
	}
	if late != nil {
		late.AnsweredLate(err)
	}
	if x != nil {
		c.deliver(x, Event{data: resp.Payload, headers: resp.Headers, err: err, final: true})
		c.yieldToCaller = c.InFlight() <= others
	}
	return true
}

// deliverChunk passes a chunk to its call; false if no call with this id is in flight.
func (c *Conn) deliverChunk(id uint32, chunk Event) bool {
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
			c.deliver(x, chunk)
		}
		return true
	}
	var cancel []byte
	if c.overflowLocked(x, chunk) {
		cancel = c.cancelLocked(call)
	}
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

// abandon removes the caller from its call, which it cancels: the call stays in flight, and the Conn breaks if the
// worker does not respond. It reports true if the worker has responded: the final event is there or about to be.
func (c *Conn) abandon(x *Exchange) (answered bool) {
	c.mu.Lock()
	if c.err != nil || x.overflow.exceeded || x.call.id != x.id {
		defer c.mu.Unlock()
		return c.err == nil && !x.overflow.exceeded
	}
	cancel := c.cancelLocked(x.call)
	c.mu.Unlock()
	c.sendCancel(cancel)
	return false
}

// cancelLocked removes the caller from its call and returns the cancel message for sendCancel. Unless the worker
// answers within CancelGrace, the Conn ends, that to an MCP server only the call; after half of that, the codec's late
// message is sent.
func (c *Conn) cancelLocked(call *callEntry) []byte {
	id, method := call.id, call.method
	call.late, _ = call.exchange.observer.(LateObserver)
	call.exchange, call.ctx, call.headers = nil, nil, nil
	now, late := c.codec.cancel(id, method)
	half := c.o.CancelGrace / 2
	call.cancelTimer = time.AfterFunc(half, func() {
		c.mu.Lock()
		due := call.id == id && c.err == nil
		if due {
			call.cancelTimer = time.AfterFunc(c.o.CancelGrace-half, func() {
				c.mu.Lock()
				due := call.id == id
				c.mu.Unlock()
				switch {
				case due && c.o.MCP:
					c.complete(id, Response{}, nil)
				case due:
					c.fail(ErrUnanswered)
				}
			})
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
