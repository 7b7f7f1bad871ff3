package wire

// spill holds the events of a stream whose caller is slower than its worker, in their order, behind those in its channel. Guarded by
// link.mu.
type spill struct {
	events []Event
	bytes  int
	cut    bool // it was too much: what the worker still sends of it is dropped
}

// spillOver gives the caller an event without waiting. It reports true when that is more than the caller may leave unread: the
// stream is then cut, and its caller told so. l.mu is held.
func (l *link) spillOver(w *Exchange, e Event) (cut bool) {
	p := &w.spill
	if p.cut {
		return false
	}
	if len(p.events) == 0 && w.offer(e) {
		return false
	}
	p.bytes += len(e.chunk)
	if e.piece && p.bytes > l.o.StreamBuffer {
		*p = spill{events: []Event{{err: &CallError{Started: true, Err: ErrSlowReader}, final: true}}, cut: true}
		return true
	}
	p.events = append(p.events, e)
	return false
}

// refill brings what was spilled to the caller, who has just made room.
func (l *link) refill(w *Exchange) {
	if l.o.MaxInflight == 1 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &w.spill
	for len(p.events) > 0 && w.offer(p.events[0]) {
		p.bytes -= len(p.events[0].chunk)
		p.events[0] = Event{}
		p.events = p.events[1:]
	}
	if len(p.events) == 0 {
		p.events = nil
	}
}

// wide is from which size, in bytes, a chunk waits in the channel alone.
const wide = 64 << 10

// offer puts an event into the channel if it has room there; link.mu is held.
func (w *Exchange) offer(e Event) bool {
	if len(e.chunk) >= wide && len(w.events) > 0 {
		return false
	}
	select {
	case w.events <- e:
		return true
	default:
		return false
	}
}
