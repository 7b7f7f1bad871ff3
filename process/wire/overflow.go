package wire

import "sync/atomic"

const (
	// streamBuffer bounds the buffer of a call for a slow onChunk, in bytes, if MaxInflight is above 1.
	streamBuffer = 8 << 20
	// streamsBuffer bounds the buffers of all calls.
	streamsBuffer = 256 << 20
)

// buffered is what the calls of all Conns have in their buffers for slow readers of streams, in bytes.
var buffered atomic.Int64

// overflow holds the events of a call for which its channel has no room, in order. Guarded by conn.mu.
type overflow struct {
	events   []Event
	bytes    int
	exceeded bool // streamBuffer or streamsBuffer was exceeded, or the caller has left: further events are dropped
}

// overflowLocked passes an event to the caller without waiting. If the caller has more than streamBuffer unread, or all
// callers together more than streamsBuffer, the call fails with ErrSlowReader and overflowLocked reports true.
func (c *Conn) overflowLocked(x *Exchange, e Event) (exceeded bool) {
	p := &x.overflow
	if p.exceeded {
		return false
	}
	if len(p.events) == 0 && x.offerLocked(e) {
		return false
	}
	size := e.chunkSize()
	p.bytes += size
	if buffered.Add(int64(size)) > streamsBuffer || p.bytes > streamBuffer {
		buffered.Add(-int64(p.bytes))
		*p = overflow{events: []Event{{err: &CallError{Started: true, Err: ErrSlowReader}, final: true}}, exceeded: true}
		return true
	}
	p.events = append(p.events, e)
	return false
}

// leave drops what the caller of an exchange has left unread.
func (c *Conn) leave(x *Exchange) {
	close(x.abandoned)
	c.mu.Lock()
	defer c.mu.Unlock()
	buffered.Add(-int64(x.overflow.bytes))
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
		buffered.Add(-int64(size))
		p.events[0] = Event{}
		p.events = p.events[1:]
	}
	if len(p.events) == 0 {
		p.events = nil
	}
}

// largeChunk is the size in bytes from which a chunk is alone in the channel.
const largeChunk = 64 << 10

// eventOverhead is the memory of a chunk beside its data, in bytes.
const eventOverhead = 128

// chunkSize is what counts towards streamBuffer; 0 for a response.
func (e Event) chunkSize() int {
	if !e.isChunk {
		return 0
	}
	return len(e.data) + len(e.kind) + eventOverhead
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
