package wire

// overflow holds the events of a stream whose caller is slower than its worker, in their order, behind those in its channel. Guarded by
// link.mu.
type overflow struct {
	events   []Event
	bytes    int
	exceeded bool // it was too much: what the worker still sends of it is dropped
}

// overflowLocked gives the caller an event without waiting. It reports true when that is more than the caller may leave unread: the
// stream is then cut, and its caller told so. l.mu is held.
func (c *conn) overflowLocked(x *Exchange, e Event) (cut bool) {
	p := &x.overflow
	if p.exceeded {
		return false
	}
	if len(p.events) == 0 && x.offerLocked(e) {
		return false
	}
	p.bytes += len(e.chunk)
	if e.isChunk && p.bytes > c.o.StreamBuffer {
		*p = overflow{events: []Event{{err: &CallError{Started: true, Err: ErrSlowReader}, final: true}}, exceeded: true}
		return true
	}
	p.events = append(p.events, e)
	return false
}

// drainOverflow brings what was spilled to the caller, who has just made room.
func (c *conn) drainOverflow(x *Exchange) {
	if c.o.MaxInflight == 1 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &x.overflow
	for len(p.events) > 0 && x.offerLocked(p.events[0]) {
		p.bytes -= len(p.events[0].chunk)
		p.events[0] = Event{}
		p.events = p.events[1:]
	}
	if len(p.events) == 0 {
		p.events = nil
	}
}

// largeChunk is from which size, in bytes, a chunk waits in the channel alone.
const largeChunk = 64 << 10

// offerLocked puts an event into the channel if it has room there; link.mu is held.
func (x *Exchange) offerLocked(e Event) bool {
	if len(e.chunk) >= largeChunk && len(x.events) > 0 {
		return false
	}
	select {
	case x.events <- e:
		return true
	default:
		return false
	}
}
