package wire

import (
	"context"
	"sync"
	"time"
)

// slot is a place in flight. Its fields are guarded by link.mu.
type slot struct {
	index   uint32
	id      uint32 // of the call that has it, 0 when free
	gen     uint32
	w       *Exchange // who waits; nil once the caller has left
	method  string
	headers map[string]string
	ctx     context.Context
	grace   *time.Timer // runs while the answer to a cancel is due
}

// Exchange is a call as its caller and the reader share it (exchange.go). A caller that finds no free place leaves its request here, and whoever frees
// one sends it: the worker gets its next request without waiting for a goroutine to be scheduled.
type Exchange struct {
	ctx    context.Context
	r      Request
	events chan Event
	gone   chan struct{} // closed by the caller when it leaves without having taken the final event
	ended  func(error)   // told of the answer before the caller is; may be nil

	// Guarded by link.mu.
	s      *slot // the place, nil before there is one
	id     uint32
	queued bool
	handed bool      // by Begin: the caller may not know yet which Conn it waits for
	spill  spill     // what has no room in events
	after  *Exchange // the next in the queue

	// mu keeps the caller from returning, and with it the request from being changed, while somebody else sends it.
	mu   sync.Mutex
	sent bool  // guarded by mu: an attempt was made
	left bool  // guarded by mu: the caller is gone, do not send
	at   int64 // guarded by mu: place in the stream; negative when it could not be put into a message
	l    *link // guarded by mu: of Begin
}

// Event is a chunk, or the end of a call when final, or else news of its Conn. What it holds is for Do.
type Event struct {
	chunk []byte
	piece bool // chunk holds a piece, which may be empty
	resp  *Response
	err   error
	final bool
}

// callIDs bounds the ids of calls, so that they are positive in any language's 32-bit integers and leave room for those of pings.
const callIDs = 1 << 30

// chunkQueue bounds the chunks that wait for a slow caller in its channel. With one place in flight the reader then waits, too, and
// through it the worker; else further ones are spilled.
const chunkQueue = 8

var exchanges = sync.Pool{New: func() any { return &Exchange{events: make(chan Event, chunkQueue), gone: make(chan struct{})} }}

// recycle keeps an exchange for the next call. Only for one whose final event was taken: nobody else knows it any more, but for who
// sent it and has not yet let go of mu.
func recycle(w *Exchange) {
	w.mu.Lock()
	w.ctx, w.r, w.s, w.id, w.ended, w.handed, w.l, w.sent, w.at = nil, Request{}, nil, 0, nil, false, nil, false, -1
	w.spill = spill{}
	w.mu.Unlock()
	exchanges.Put(w)
}

// waiting is a queue of waiters, first come first served.
type waiting struct{ first, last *Exchange }

func (q *waiting) push(w *Exchange) {
	w.queued = true
	if q.first == nil {
		q.first = w
	} else {
		q.last.after = w
	}
	q.last = w
}

func (q *waiting) pop() *Exchange {
	w := q.first
	if w != nil {
		q.first, w.after, w.queued = w.after, nil, false
	}
	return w
}

func (q *waiting) remove(w *Exchange) {
	var before *Exchange
	for at := q.first; at != w; at = at.after {
		before = at
	}
	if before == nil {
		q.first = w.after
	} else {
		before.after = w.after
	}
	if q.last == w {
		q.last = before
	}
	w.after, w.queued = nil, false
}

// enter gives the call a place, or puts it into the queue for one. mine says that the caller has to send the request.
func (l *link) enter(w *Exchange) (mine bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false, l.err
	}
	if n := len(l.free); n > 0 {
		s := l.free[n-1]
		l.free = l.free[:n-1]
		l.taken.Add(1)
		l.occupy(s, w)
		return true, nil
	}
	l.queue.push(w)
	return false, nil
}

// enterNow gives the call a place if one is free.
func (l *link) enterNow(w *Exchange) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.free)
	if l.err != nil || n == 0 {
		return false
	}
	s := l.free[n-1]
	l.free = l.free[:n-1]
	l.taken.Add(1)
	w.handed = true
	l.occupy(s, w)
	return true
}

// occupy gives the place to a call; l.mu is held.
func (l *link) occupy(s *slot, w *Exchange) {
	if s.gen++; s.gen<<l.shift >= callIDs {
		s.gen = 1 // an id is never 0: that stands for no call
	}
	s.id = s.gen<<l.shift | s.index
	s.w, s.ctx, s.method, s.headers = w, w.ctx, w.r.Method, w.r.Headers
	w.s, w.id = s, s.id
}

// vacate takes the place from its call and gives it to the next in the queue, who is returned for handOver; l.mu is held.
func (l *link) vacate(s *slot) *Exchange {
	s.id, s.w, s.ctx, s.method, s.headers = 0, nil, nil, "", nil
	if s.grace != nil {
		s.grace.Stop()
		s.grace = nil
	}
	if l.err == nil {
		if next := l.queue.pop(); next != nil {
			l.occupy(s, next)
			return next
		}
	}
	l.taken.Add(-1)
	l.free = append(l.free, s)
	return nil
}

// handOver sends the request of a call that got its place from vacate. A call that cannot be sent is told so, and its place goes on.
func (l *link) handOver(w *Exchange) {
	for w != nil {
		w.mu.Lock()
		if w.left {
			w.mu.Unlock()
			w = l.withdraw(w)
			continue
		}
		err := l.sendRequest(w)
		w.mu.Unlock()
		if err == nil {
			return
		}
		next := l.withdraw(w)
		l.push(w, Event{err: err, final: true})
		w = next
	}
}

// fallThrough tells a call that has a place that it could not be sent, and hands its place on.
func (l *link) fallThrough(w *Exchange, err error) {
	next := l.withdraw(w)
	l.push(w, Event{err: err, final: true})
	l.handOver(next)
}

// withdraw gives back the place of a call that was not sent, and returns who has it now.
func (l *link) withdraw(w *Exchange) *Exchange {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.s.id != w.id { // a worker answered what it was not asked
		return nil
	}
	return l.vacate(w.s)
}

// at finds the place of a call in flight under l.mu; nil when none has this id.
func (l *link) at(id uint32) *slot {
	index := id & (1<<l.shift - 1)
	if id == 0 || int(index) >= len(l.slots) || l.slots[index].id != id {
		return nil
	}
	return &l.slots[index]
}

// finish gives a call its answer and frees its place; false when no call with this id is in flight. The reader calls it.
func (l *link) finish(id uint32, resp *Response, err error) bool {
	l.mu.Lock()
	s := l.at(id)
	if s == nil {
		l.mu.Unlock()
		return false
	}
	w := s.w
	var ended func(error)
	if w != nil {
		ended = w.ended
	}
	next := l.vacate(s)
	others := l.taken.Load()
	l.mu.Unlock()
	l.handOver(next) // before the caller is woken, since the worker idles until it is done
	if ended != nil {
		ended(err)
	}
	if w != nil {
		l.push(w, Event{resp: resp, err: err, final: true})
		l.yield = next == nil && l.taken.Load() <= others
	}
	return true
}

// chunk gives a call a piece of its stream; false when no call with this id is in flight.
func (l *link) chunk(id uint32, data []byte) bool {
	l.mu.Lock()
	s := l.at(id)
	if s == nil {
		l.mu.Unlock()
		return false
	}
	w := s.w
	if w == nil || l.o.MaxInflight == 1 {
		l.mu.Unlock()
		if w != nil {
			l.push(w, Event{chunk: data, piece: true})
		}
		return true
	}
	cut := l.spillOver(w, Event{chunk: data, piece: true})
	if !cut {
		l.mu.Unlock()
		return true
	}
	cancel := l.abandon(s)
	l.mu.Unlock()
	l.send(cancel)
	return true
}

// push gives the caller the last event of its call, or a chunk that it may be waited for with.
func (l *link) push(w *Exchange, e Event) {
	if l.o.MaxInflight > 1 {
		l.mu.Lock()
		l.spillOver(w, e)
		l.mu.Unlock()
		return
	}
	select {
	case w.events <- e:
		return
	default:
	}
	select {
	case w.events <- e:
	case <-w.gone:
	case <-l.done:
	}
}

// leaving is what a caller finds that leaves before its answer.
type leaving int

const (
	answered  leaving = iota // the final event is there, or about to be
	unstarted                // nothing was sent, and nothing will be
	abandoned                // the place stays taken, the worker was asked to answer soon, and the Conn breaks if it does not
)

// leave takes the caller out of its call.
func (l *link) leave(w *Exchange) leaving {
	l.mu.Lock()
	if w.queued {
		l.queue.remove(w)
		l.mu.Unlock()
		return unstarted
	}
	l.mu.Unlock()
	w.mu.Lock()
	sent := w.sent
	w.left = !sent
	w.mu.Unlock()
	if !sent {
		return unstarted
	}
	l.mu.Lock()
	s, id := w.s, w.id
	if l.err != nil || w.spill.cut {
		l.mu.Unlock()
		return abandoned
	}
	if s.id != id {
		l.mu.Unlock()
		return answered
	}
	cancel := l.abandon(s)
	l.mu.Unlock()
	l.send(cancel)
	return abandoned
}

// abandon takes the caller out of its place, which waits for the worker's answer from then on, and returns the message that asks for
// it; l.mu is held.
func (l *link) abandon(s *slot) []byte {
	id, method := s.id, s.method
	s.w, s.ctx, s.headers = nil, nil, nil
	s.grace = time.AfterFunc(l.o.CancelGrace, func() {
		l.mu.Lock()
		due := s.id == id
		l.mu.Unlock()
		if due {
			l.fail(ErrUnanswered)
		}
	})
	return l.d.appendCancel(nil, id, method)
}

// send sends a cancel, which may be empty.
func (l *link) send(cancel []byte) {
	if len(cancel) > 0 {
		l.out.send(cancel, nil) // if it cannot be sent, the grace ends the Conn
	}
}

// started tells whether any byte of the call's request may have reached the worker.
func (l *link) started(w *Exchange) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent && w.at >= 0 && l.out.mayHaveLeft(w.at)
}
