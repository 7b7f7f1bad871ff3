package pool

import (
	"container/heap"
	"iter"
	"sync"
	"time"
)

// Priorities of calls. 9 goes first; calls of one priority go in the order of their arrival. A call gains a level with
// each tenth of queue.timeout that it waits, so that no flood of calls with a higher priority keeps it waiting until it
// fails.
const (
	MinPriority     = 0
	MaxPriority     = 9
	DefaultPriority = 0
)

// turn is a place in the order of those who wait.
type turn struct {
	due time.Time // the earliest goes first
	seq int64     // of the arrival; it decides between those that are due at the same time
}

// turnOf is the place of an arrival. All levels rise at one pace, so their order never changes, and a level is worth a
// constant time: a call with priority n stands where it would if it had come n tenths of the timeout earlier.
func turnOf(arrived time.Time, priority int, timeout time.Duration, seq int64) turn {
	return turn{arrived.Add(-time.Duration(priority) * (timeout / (MaxPriority + 1))), seq}
}

// before reports whether a goes before b.
func (a turn) before(b turn) bool {
	if c := a.due.Compare(b.due); c != 0 {
		return c < 0
	}
	return a.seq < b.seq
}

// arrival is when a call joined the queue, and its number in the order of arrival.
type arrival struct {
	at   time.Time
	turn turn
}

// waiter is a call that waits for a free slot of a worker, or a client that waits for a lease on one.
type waiter struct {
	pool       *poolState
	call       *Call
	client     string    // who makes the call
	checkout   bool      // of a client, which waits for a lease
	reserved   *upstream // of a checkout: the worker that the client may ask; nil for one of another host
	worker     string    // the only one that may serve the call; "" for any
	preferred  string    // worker
	priority   int
	turn       turn
	index      int // in the heap; -1 when it is not queued
	shareIndex int // in its client's share
	// started gets one value: nil when the call has started or the client may check a worker out, or why it never will;
	// none if another goroutine has sent its request.
	started chan error
	timer   *time.Timer

	queuedAt time.Time
	timeout  time.Duration
}

// waiterPool recycles waiters, because their channel and timer cost more than the rest of a wait.
var waiterPool = sync.Pool{New: func() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &waiter{started: make(chan error, 1), timer: timer}
}}

func newWaiter(p *poolState, c *Call, t *Target) *waiter {
	w := waiterPool.Get().(*waiter)
	w.pool, w.call, w.worker, w.preferred, w.priority, w.index, w.turn =
		p, c, t.worker, t.preferred, t.priority, -1, t.arrived.turn
	if c != nil {
		w.client = c.client
	}
	return w
}

// recycle keeps the waiter for a later call. It must not be queued, and the value of started must have been received.
func (w *waiter) recycle() {
	w.timer.Stop()
	w.pool, w.call, w.checkout, w.reserved, w.client = nil, nil, false, nil, ""
	waiterPool.Put(w)
}

// queue orders waiters by their turns. Calls for one worker have a heap of their own, so that they delay no others, and
// so have clients, each of whom needs a worker for itself. The zero value is empty. Its user bounds and guards it.
type queue struct {
	heap     waiters             // calls for any worker
	byWorker map[string]*waiters // calls for one worker; no heap is empty
	clients  waiters
	shares   shares // of the clients that made the calls
	len      int
	seq      int64
	latest   time.Time // arrival
}

// Len is the number of calls.
func (q *queue) Len() int { return q.len }

// Clients is the number of clients that wait for a lease.
func (q *queue) Clients() int { return len(q.clients) }

// Empty reports whether nobody waits whom a call for the worker, or for any worker for "", would have to let pass.
func (q *queue) Empty(worker string) bool {
	return len(q.heap) == 0 && len(q.clients) == 0 && (worker == "" || q.byWorker[worker] == nil)
}

// Push adds a waiter. Unless it has a turn from before, that depends on its priority, queuedAt and timeout.
func (q *queue) Push(w *waiter) {
	if w.turn.seq == 0 {
		w.turn = q.arrive(w.queuedAt, w.priority, w.timeout)
	}
	if w.checkout {
		heap.Push(&q.clients, w)
		return
	}
	q.len++
	q.shares.add(w)
	if w.worker == "" {
		heap.Push(&q.heap, w)
		return
	}
	h := q.byWorker[w.worker]
	if h == nil {
		h = &waiters{}
		if q.byWorker == nil {
			q.byWorker = make(map[string]*waiters)
		}
		q.byWorker[w.worker] = h
	}
	heap.Push(h, w)
}

// arrive returns the turn of the next arrival. Callers may have looked at the clock in another order than they arrive.
func (q *queue) arrive(now time.Time, priority int, timeout time.Duration) turn {
	q.seq++
	if now.After(q.latest) {
		q.latest = now
	}
	return turnOf(q.latest, priority, timeout, q.seq)
}

// PeekFor returns the next waiter for one worker, nil if there is none.
func (q *queue) PeekFor(worker string) *waiter {
	if h := q.byWorker[worker]; h != nil {
		return (*h)[0]
	}
	return nil
}

// PeekClient returns the next client, nil if none waits.
func (q *queue) PeekClient() *waiter {
	if len(q.clients) == 0 {
		return nil
	}
	return q.clients[0]
}

// All iterates over the waiters, in no order.
func (q *queue) All() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for _, w := range q.heap {
			if !yield(w) {
				return
			}
		}
		for _, w := range q.clients {
			if !yield(w) {
				return
			}
		}
		for _, h := range q.byWorker {
			for _, w := range *h {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// Peek returns the next waiter for any worker, nil if there is none.
func (q *queue) Peek() *waiter {
	if len(q.heap) == 0 {
		return nil
	}
	return q.heap[0]
}

// Remove removes a waiter. It reports false if the waiter is not queued.
func (q *queue) Remove(w *waiter) bool {
	if w.index < 0 {
		return false
	}
	if w.checkout {
		heap.Remove(&q.clients, w.index)
		return true
	}
	q.len--
	q.shares.remove(w)
	if w.worker == "" {
		heap.Remove(&q.heap, w.index)
		return true
	}
	h := q.byWorker[w.worker]
	if heap.Remove(h, w.index); len(*h) == 0 {
		delete(q.byWorker, w.worker)
	}
	return true
}

type waiters []*waiter

func (h waiters) Len() int { return len(h) }

func (h waiters) Less(i, j int) bool { return h[i].before(h[j]) }

// before reports whether w is served before o.
func (w *waiter) before(o *waiter) bool { return w.turn.before(o.turn) }

func (h waiters) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *waiters) Push(x any) {
	w := x.(*waiter)
	w.index = len(*h)
	*h = append(*h, w)
}

func (h *waiters) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	w.index = -1
	return w
}
