package wire

import "sync/atomic"

const (
	// waitingEvents bounds the inbox of a call in chunks, if MaxInflight is 1. An Exchange has memory for so many events.
	waitingEvents = 8
	// streamBuffer bounds the inbox of a call for a slow onChunk, in bytes, if MaxInflight is above 1. A chunk that finds
	// it empty does not count.
	streamBuffer = 8 << 20
	// streamsBuffer bounds the inboxes of all calls.
	streamsBuffer = 256 << 20
	// eventOverhead is the memory of a chunk beside its data, in bytes.
	eventOverhead = 128
)

// buffered is what counts in the inboxes of all Conns, in bytes.
var buffered atomic.Int64

// event is a chunk or the end of a call.
type event struct {
	data    []byte            // a chunk, or the payload of the response
	headers map[string]string // of the response
	kind    string            // content type of the stream, with its first chunk; "" for none
	err     error
	isChunk bool
	final   bool
	counted int // towards streamBuffer, in bytes
}

// inbox has the events of a call that its caller has not taken, in order. All but ready is guarded by conn.mu.
type inbox struct {
	events  []event
	space   [waitingEvents]event // the memory of events, until more wait
	counted int                  // the sum of those of events
	left    bool                 // the caller takes no more: it has gone, or goes with ErrSlowReader
	// ready has a token if there are events, the Conn has ended, or the caller was too slow; now and then for nothing.
	ready chan struct{}
}

func (b *inbox) wake() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// pushLocked passes an event to the caller without waiting. If more than streamBuffer waits for the caller, or more
// than streamsBuffer for all, the call fails with ErrSlowReader.
func (c *Conn) pushLocked(x *Exchange, e event) {
	if x.left {
		return
	}
	if len(x.events) == 0 {
		x.events = x.space[:0]
	} else if e.isChunk && c.o.MaxInflight > 1 {
		e.counted = len(e.data) + len(e.kind) + eventOverhead
		x.counted += e.counted
		if buffered.Add(int64(e.counted)) > streamsBuffer || x.counted > streamBuffer {
			c.leaveLocked(x)
			x.wake()
			return
		}
	}
	waiting := x.events
	x.events = append(waiting, e)
	if cap(x.events) != cap(waiting) { // moved
		clear(waiting)
	}
	x.wake()
}

// take returns the next event; the zero event if there is none yet, and an error if none comes any more.
func (x *Exchange) take() (event, error) {
	c := x.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case x.left:
		return event{}, ErrSlowReader
	case len(x.events) == 0:
		return event{}, c.err
	}
	e := x.events[0]
	x.events[0] = event{}
	x.events = x.events[1:]
	if e.counted > 0 {
		x.counted -= e.counted
		buffered.Add(-int64(e.counted))
	}
	if len(x.events) > 0 || c.err != nil {
		x.wake()
	}
	c.room.Signal()
	return e, nil
}

// answered reports whether the end of the call is in its inbox.
func (x *Exchange) answered() bool {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	n := len(x.events)
	return n > 0 && x.events[n-1].final
}
