package wire

// overflow holds the events of a call for which its channel has no room, in order. Guarded by conn.mu.
type overflow struct {
	events   []Event
	bytes    int
	exceeded bool // StreamBuffer was exceeded: further events are dropped
}

// overflowLocked passes an event to the caller without waiting. If the caller has more than StreamBuffer unread, the
// call fails with ErrSlowReader and overflowLocked reports true.
func (c *Conn) overflowLocked(x *Exchange, e Event) (exceeded bool) {
	p := &x.overflow
	if p.exceeded {
		return false
	}
	if len(p.events) == 0 && x.offerLocked(e) {
		return false
	}
	p.bytes += e.chunkSize()
	if e.isChunk && p.bytes > c.o.StreamBuffer {
		*p = overflow{events: []Event{{err: &CallError{Started: true, Err: ErrSlowReader}, final: true}}, exceeded: true}
		return true
	}
	p.events = append(p.events, e)
	return false
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
		p.bytes -= p.events[0].chunkSize()
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
