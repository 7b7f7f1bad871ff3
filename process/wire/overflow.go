package wire

import "sync/atomic"

// StreamBudget bounds what the Conns that share it buffer for slow readers of streams.
type StreamBudget struct {
	most int64 // bytes
	used atomic.Int64
}

// NewStreamBudget returns a budget of so many bytes.
func NewStreamBudget(most int64) *StreamBudget { return &StreamBudget{most: most} }

// agentStreams is the budget of Conns without one of their own.
var agentStreams = NewStreamBudget(256 << 20)

// take reserves n bytes, unless they exceed the budget.
func (b *StreamBudget) take(n int) bool {
	if b.used.Add(int64(n)) > b.most {
		b.give(n)
		return false
	}
	return true
}

func (b *StreamBudget) give(n int) { b.used.Add(-int64(n)) }

// overflow holds the events of a call for which its channel has no room, in order. Guarded by conn.mu.
type overflow struct {
	events   []Event
	bytes    int
	exceeded bool // StreamBuffer or the budget was exceeded, or the caller has left: further events are dropped
}

// overflowLocked passes an event to the caller without waiting. If the caller has more than StreamBuffer unread, or all
// callers together more than the budget, the call fails with ErrSlowReader and overflowLocked reports true.
func (c *Conn) overflowLocked(x *Exchange, e Event) (exceeded bool) {
	p := &x.overflow
	if p.exceeded {
		return false
	}
	if len(p.events) == 0 && x.offerLocked(e) {
		return false
	}
	size := e.chunkSize()
	if p.bytes+size > c.o.StreamBuffer || !c.o.Streams.take(size) {
		c.o.Streams.give(p.bytes)
		*p = overflow{events: []Event{{err: &CallError{Started: true, Err: ErrSlowReader}, final: true}}, exceeded: true}
		return true
	}
	p.bytes += size
	p.events = append(p.events, e)
	return false
}

// leave drops what the caller of an exchange has left unread.
func (c *Conn) leave(x *Exchange) {
	close(x.abandoned)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.o.Streams.give(x.overflow.bytes)
	x.overflow = overflow{exceeded: true}
}

// drainOverflow moves events to the channel after the caller has received one.
func (c *Conn) drainOverflow(x *Exchange) {
	if c.o.MaxInflight == 1 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &x.overflow
	for len(p.events) > 0 && x.offerLocked(p.events[0]) {
		size := p.events[0].chunkSize()
		p.bytes -= size
		c.o.Streams.give(size)
		p.events[0] = Event{}
		p.events = p.events[1:]
	}
	if len(p.events) == 0 {
		p.events = nil
	}
}

// largeChunk is the size in bytes from which a chunk is alone in the channel.
const largeChunk = 64 << 10

// chunkSize is what counts towards StreamBuffer; 0 for a response.
func (e Event) chunkSize() int {
	if !e.isChunk {
		return 0
	}
	return len(e.data)
}

// offerLocked puts an event into the channel if there is room.
func (x *Exchange) offerLocked(e Event) bool {
	if e.chunkSize() >= largeChunk && len(x.events) > 0 {
		return false
	}
	select {
	case x.events <- e:
		return true
	default:
		return false
	}
}
