package wire

import "time"

// maxCallID bounds the ids of calls: they fit any language's signed 32-bit integers and leave room for the ids of
// pings.
const maxCallID = 1 << 30

// register puts a call, for which there is a token in c.places, in flight under a new id. If c takes none, it takes the
// token back. x.mu is held.
func (c *Conn) register(x *Exchange) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusalLocked(); err != nil {
		<-c.places
		return err
	}
	for used := true; used; used = c.calls[c.lastID] != nil {
		c.lastID = c.lastID%(maxCallID-1) + 1 // 0 means no call
	}
	x.conn, x.id, c.calls[c.lastID] = c, c.lastID, x
	return nil
}

// releaseLocked ends a call in flight, whose place is free again.
func (c *Conn) releaseLocked(x *Exchange) {
	delete(c.calls, x.id)
	if x.cancelTimer != nil {
		x.cancelTimer.Stop()
	}
	<-c.places
}

// complete ends a call with its response; false if no call with this id is in flight. Besides the reader only the end
// of a grace calls it, for a call whose caller has left.
func (c *Conn) complete(id uint32, resp Response, err error) bool {
	c.mu.Lock()
	x := c.calls[id]
	if x == nil {
		c.mu.Unlock()
		return false
	}
	left, ended := x.left, c.err != nil
	c.releaseLocked(x)
	others := c.InFlight()
	c.mu.Unlock()
	switch {
	case x.observer == nil || ended:
	case left:
		x.observer.AnsweredLate(err)
	default:
		x.observer.Answered(err) // first, since the worker is idle until it has the next request
	}
	if left {
		return true
	}
	c.mu.Lock()
	c.pushLocked(x, event{data: resp.Payload, headers: resp.Headers, err: err, final: true})
	c.mu.Unlock()
	c.yieldToCaller = c.InFlight() <= others
	return true
}

// deliverChunk passes a chunk to its call; false if no call with this id is in flight. With MaxInflight 1 it waits
// while the inbox is full, and the worker waits with it; after the end of the Conn it takes what the streams still
// hold.
func (c *Conn) deliverChunk(id uint32, chunk event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.calls[id]
	for c.o.MaxInflight == 1 && x != nil && len(x.events) >= waitingEvents && c.err == nil {
		c.room.Wait()
		x = c.calls[id]
	}
	if x != nil {
		c.pushLocked(x, chunk)
	}
	return x != nil
}

// leaveLocked removes the caller from its call, which it cancels if it is in flight. Unless the worker answers within
// CancelGrace, the Conn ends, that to an MCP server only the call; after half of that, the codec's late message is
// sent.
func (c *Conn) leaveLocked(x *Exchange) {
	inFlight := c.calls[x.id] == x && !x.left && c.err == nil
	buffered.Add(-int64(x.counted))
	clear(x.events)
	x.events, x.counted, x.left = nil, 0, true
	c.room.Signal()
	if !inFlight {
		return
	}
	now, late := c.codec.cancel(x.id, x.request.Method)
	c.out.send(now, nil) // if this fails, the timer ends the Conn
	half := c.o.CancelGrace / 2
	x.cancelTimer = time.AfterFunc(half, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.calls[x.id] == x && c.err == nil {
			c.out.send(late, nil)
			x.cancelTimer = time.AfterFunc(c.o.CancelGrace-half, func() { c.unanswered(x) })
		}
	})
}

// unanswered ends a cancelled call to which the worker has not responded in time.
func (c *Conn) unanswered(x *Exchange) {
	if c.o.MCP {
		c.complete(x.id, Response{}, nil)
		return
	}
	c.mu.Lock()
	inFlight := c.calls[x.id] == x
	c.mu.Unlock()
	if inFlight {
		c.fail(ErrUnanswered)
	}
}
