package pool

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/internal/ordered"
)

// Priorities of calls. 9 goes first; calls of one priority go in the order of their arrival. A call gains a level with
// each tenth of queue.timeout that it waits, so that no flood of calls with a higher priority keeps it waiting until it
// fails.
const (
	MinPriority     = 0
	MaxPriority     = 9
	DefaultPriority = 0
)

// arrival is when somebody joined the queue, and the place in its order that this gives. The zero value means nobody.
type arrival struct {
	at  time.Time
	due time.Time // the earliest goes first
	seq int64     // it decides between those that are due at the same time
}

// arrivalOf is an arrival at some time. All levels rise at one pace, so their order never changes, and a level is worth
// a constant time: a call with priority n stands where it would if it had come n tenths of the timeout earlier.
func arrivalOf(at time.Time, priority int, timeout time.Duration, seq int64) arrival {
	return arrival{at, at.Add(-time.Duration(priority) * (timeout / (MaxPriority + 1))), seq}
}

// waited is for how long somebody has waited that has arrived; 0 for nobody.
func (a arrival) waited(now time.Time) time.Duration {
	if a.seq == 0 {
		return 0
	}
	return max(0, now.Sub(a.at))
}

// before reports whether a goes before b.
func (a arrival) before(b arrival) bool {
	if c := a.due.Compare(b.due); c != 0 {
		return c < 0
	}
	return a.seq < b.seq
}

// waiter is a call that waits for a free slot of a worker, or a client that waits for a lease on one.
type waiter struct {
	arrival
	pool      *poolState
	call      *Call                              // nil for a client
	reserved  *upstream                          // for a client: the worker that it may ask
	key       string                             // hash; see use
	worker    string                             // the only one that may serve the call; "" for any
	preferred string                             // worker
	held      string                             // its session, which is not released yet; "" if the call may start
	timeout   time.Duration                      // from its arrival
	forward   func(context.Context, Place) error // nil for what must not leave this host
	// started gets one value: nil when the call has started or the client may ask for its lease, or why it never will;
	// none if another goroutine has sent the request.
	started chan error

	place, sharePlace, expiryPlace int // in its line, its client's share, and among those that expire
}

// waiterPool recycles waiters, because their channel costs more than the rest of a wait.
var waiterPool = sync.Pool{New: func() any { return &waiter{started: make(chan error, 1)} }}

// newWaiter returns a waiter for c, or for a client if that is nil, as the target says, with its earlier arrival.
func newWaiter(p *poolState, c *Call, t *Target) *waiter {
	w := waiterPool.Get().(*waiter)
	*w = waiter{started: w.started, pool: p, call: c, key: t.key, worker: t.worker,
		preferred: t.preferred, arrival: t.arrived, place: -1}
	if c != nil {
		w.forward = c.forward
	}
	return w
}

// recycle keeps the waiter for a later call. It must not be queued, and the value of started must have been received.
func (w *waiter) recycle() {
	*w = waiter{started: w.started}
	waiterPool.Put(w)
}

// expires is when it has waited too long.
func (w *waiter) expires() time.Time { return w.at.Add(w.timeout) }

// line names a line of the queue: of calls for any worker or for one, and of one key; of calls of a session that is not
// released yet, or of clients.
type line struct {
	worker, session, key string
	clients              bool
	leaves               bool // of those that may go to another host
}

func (w *waiter) line() line {
	if w.held != "" {
		return line{session: w.held}
	}
	return line{worker: w.worker, key: w.key, clients: w.call == nil, leaves: w.forward != nil}
}

// queue has those who wait for a worker, in lines of their own, so that none delays another. Its user bounds and guards
// it.
type queue struct {
	lines    map[line]*ordered.Heap[*waiter] // only those of any worker, without a session or a key, may be empty
	expiring ordered.Heap[*waiter]           // all
	shares   shares                          // of the clients that made the calls
	clients  int
	seq      int64
	latest   time.Time // arrival
}

func newLine() *ordered.Heap[*waiter] {
	return &ordered.Heap[*waiter]{Before: func(a, b *waiter) bool { return a.before(b.arrival) },
		Place: func(w *waiter) *int { return &w.place }}
}

func newQueue() *queue {
	q := &queue{shares: newShares(), lines: map[line]*ordered.Heap[*waiter]{},
		expiring: ordered.Heap[*waiter]{Before: func(a, b *waiter) bool { return a.expires().Before(b.expires()) },
			Place: func(w *waiter) *int { return &w.expiryPlace }}}
	for _, l := range []line{{}, {leaves: true}, {clients: true}, {clients: true, leaves: true}} {
		q.lines[l] = newLine()
	}
	return q
}

// Len is the number of calls.
func (q *queue) Len() int { return q.expiring.Len() - q.clients }

// Clients is the number of clients that wait for a lease.
func (q *queue) Clients() int { return q.clients }

// Empty reports whether nobody waits whom a call of the key for the worker, or for any worker for "", would have to let
// pass: those of other keys wait for other processes.
func (q *queue) Empty(worker, key string) bool {
	return q.expiring.Len() == 0 || !slices.ContainsFunc([]line{{worker: worker, key: key}, {key: key},
		{key: key, leaves: true}, {key: key, clients: true}, {key: key, clients: true, leaves: true}},
		func(l line) bool { return q.First(l) != nil })
}

// Push adds a waiter, which has arrived.
func (q *queue) Push(w *waiter) {
	l := w.line()
	if q.lines[l] == nil {
		q.lines[l] = newLine()
	}
	q.lines[l].Push(w)
	q.expiring.Push(w)
	if w.call != nil {
		q.shares.add(w)
	} else {
		q.clients++
	}
}

// arrive returns the next arrival. Callers may have looked at the clock in another order than they arrive.
func (q *queue) arrive(now time.Time, priority int, timeout time.Duration) arrival {
	q.seq++
	if now.After(q.latest) {
		q.latest = now
	}
	return arrivalOf(q.latest, priority, timeout, q.seq)
}

// First returns the next waiter of a line, nil if there is none.
func (q *queue) First(l line) *waiter {
	if waiting := q.lines[l]; waiting != nil {
		return waiting.First()
	}
	return nil
}

// Leaver returns the next that may go to another host, nil if there is none.
func (q *queue) Leaver(who Leavers) (first *waiter) {
	for l, waiting := range q.lines {
		w := waiting.First()
		if w != nil && l.leaves && (who == CallsAndClients || l.clients == (who == Clients)) &&
			(first == nil || w.before(first.arrival)) {
			first = w
		}
	}
	return first
}

// All are the waiters, in no order.
func (q *queue) All() []*waiter { return slices.Clone(q.expiring.Items) }

// Remove removes a waiter. It reports false if the waiter is not queued.
func (q *queue) Remove(w *waiter) bool {
	if w.place < 0 {
		return false
	}
	l := w.line()
	if q.lines[l].Remove(w); q.lines[l].Len() == 0 && (l.worker != "" || l.session != "" || l.key != "") {
		delete(q.lines, l)
	}
	q.expiring.Remove(w)
	if w.call != nil {
		q.shares.remove(w)
	} else {
		q.clients--
	}
	return true
}

// shares counts the queued calls of each client, so that a full queue can displace the last call of the one that has
// the most, without a look at all calls.
type shares struct {
	byClient map[string]*share
	most     ordered.Heap[*share]
}

// share are the queued calls of one client: the last is the one to displace.
type share struct {
	calls ordered.Heap[*waiter] // the last first
	place int                   // in most
}

func newShares() shares {
	return shares{byClient: map[string]*share{}, most: ordered.Heap[*share]{
		Before: func(a, b *share) bool { return a.calls.Len() > b.calls.Len() },
		Place:  func(s *share) *int { return &s.place },
	}}
}

func (s *shares) add(w *waiter) {
	own := s.byClient[w.call.client]
	if own == nil {
		own = &share{calls: ordered.Heap[*waiter]{
			Before: func(a, b *waiter) bool { return b.before(a.arrival) },
			Place:  func(w *waiter) *int { return &w.sharePlace },
		}}
		s.byClient[w.call.client] = own
		s.most.Push(own)
	}
	own.calls.Push(w)
	s.most.Fix(own)
}

func (s *shares) remove(w *waiter) {
	own := s.byClient[w.call.client]
	own.calls.Remove(w)
	if own.calls.Len() > 0 {
		s.most.Fix(own)
		return
	}
	s.most.Remove(own)
	delete(s.byClient, w.call.client)
}

// displaceable is the last call of the client that has the most, if that has more than client even after client has
// another one; else nil.
func (s *shares) displaceable(client string) *waiter {
	has := 0
	if own := s.byClient[client]; own != nil {
		has = own.calls.Len()
	}
	if most := s.most.First(); most != nil && most.calls.Len() > has+1 {
		return most.calls.First()
	}
	return nil
}
