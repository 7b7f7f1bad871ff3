package wire

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"
)

// A serial worker (Hello.Serial) with MaxInflight 1 would sleep after each answer until this host has read it and sent the next request. BeginAhead
// puts that request into its socket before. The worker begins it only when it has answered the call before it, and so do this Conn's promises: the
// time to answer a cancel begins then, and a worker that ends before has certainly not begun it.

// maxFinalRead bounds how long a Conn that has failed reads what its worker has still written, to know whether that has begun the call sent ahead.
const maxFinalRead = 2 * time.Second

// closeFinalRead is maxFinalRead once the Conn is closed.
const closeFinalRead = 50 * time.Millisecond

// BeginAhead is Begin behind the one call that a serial worker serves. It reports false for Begin's reasons, and if the worker is not serial, MaxInflight
// is above 1, or the calls in flight and in the queue are not one whose request was sent.
func (x *Exchange) BeginAhead(c *Conn) bool { return x.begin(c, (*Conn).tryAdmitAhead) }

// ServesSerially reports whether the worker of c has said that it is serial.
func ServesSerially(c *Conn) bool {
	d := framesOf(c)
	if d == nil {
		return false
	}
	select {
	case <-d.ready:
		return d.hello.Serial
	default:
		return false
	}
}

// HasCallAhead reports whether a call was sent behind the one that the worker of c serves.
func HasCallAhead(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead != nil
}

// tryAdmitAhead takes an entry for the call if it may be sent behind the one in flight.
func (c *Conn) tryAdmitAhead(x *Exchange) bool {
	if !ServesSerially(c) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.o.MaxInflight != 1 || c.refusalLocked() != nil || c.usedLocked() != 1 || c.waiting.first != nil {
		return false
	}
	for i := range c.calls {
		if id := c.calls[i].id; id != 0 && c.calls[i].written.Load() != id { // this request could overtake it
			return false
		}
	}
	x.begun = true
	c.takeFreeLocked(x)
	c.ahead = x.call
	return true
}

// advanceLocked is called for each call that ends: the worker now begins the one that was sent ahead. It returns that one's observer, if it has one and its
// caller waits.
func (c *Conn) advanceLocked(ended *callEntry) Observer {
	next := c.ahead
	if next == nil {
		return nil
	}
	c.ahead = nil
	switch {
	case next == ended: // it could not be sent; or it was cancelled, and answered while the call before it looked for cancels
		return nil
	case next.exchange == nil:
		if c.err == nil {
			c.awaitCancelledLocked(next, nil)
		}
		return nil
	}
	return next.exchange.observer
}

// answeringLocked finds a call in flight that the worker may answer now: not one sent ahead, unless that was cancelled.
func (c *Conn) answeringLocked(id uint32) *callEntry {
	call := c.lookupLocked(id)
	if call != nil && call == c.ahead && call.exchange != nil {
		return nil
	}
	return call
}

// awaitFate waits until it is known whether the worker of a Conn that has ended has begun the call, or ctx ends.
func (c *Conn) awaitFate(ctx context.Context, x *Exchange) {
	c.mu.Lock()
	ahead := c.ahead != nil && c.ahead.exchange == x
	c.mu.Unlock()
	if !ahead {
		return
	}
	select {
	case <-c.readEnded:
	case <-ctx.Done():
	}
}

// awaitFinalRead gives a Conn that is closed a moment to read what its worker has still written, if a call was sent ahead.
func (c *Conn) awaitFinalRead() {
	c.mu.Lock()
	ahead := c.ahead != nil
	c.mu.Unlock()
	if !ahead {
		return
	}
	timer := time.NewTimer(closeFinalRead)
	defer timer.Stop()
	select {
	case <-c.readEnded:
	case <-timer.C:
	}
}

// endedBefore reports whether the worker has certainly ended before it began the call: all that it has written was read, to the end, and the
// answer to the call before is not among it.
func (c *Conn) endedBefore(x *Exchange) bool {
	select {
	case <-c.readEnded:
	default:
		return false
	}
	if !errors.Is(c.readErr, io.EOF) && !errors.Is(c.readErr, io.ErrUnexpectedEOF) && !errors.Is(c.readErr, syscall.ECONNRESET) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead != nil && c.ahead.exchange == x
}
