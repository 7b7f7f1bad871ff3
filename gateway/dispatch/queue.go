package dispatch

import (
	"container/heap"
	"iter"
	"sync"
	"time"
)

// Priorities of calls. 9 goes first; calls of one priority go in the order of their arrival.
const (
	MinPriority     = 0
	MaxPriority     = 9
	DefaultPriority = 0
)

// waiter is a call in the queue of a pool.
type waiter struct {
	pool      *poolState
	call      *Call
	worker    string // the only one that may serve the call; "" for any
	preferred string // worker
	session   string // of a call of the pool
	priority  int
	seq       int64
	index     int // in the heap; -1 when it is not queued
	// started gets one value: nil when the call has started, or why it never will; none if another goroutine has sent its request.
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
	w.pool, w.call, w.worker, w.preferred, w.session, w.priority, w.seq, w.index = p, c, t.worker, t.preferred, t.session, t.priority, 0, -1
	return w
}

// recycle keeps the waiter for a later call. It must not be queued, and the value of started must have been received.
func (w *waiter) recycle() {
	w.timer.Stop()
	w.pool, w.call = nil, nil
	waiterPool.Put(w)
}

// queue orders waiters by priority, then by arrival. Those for one worker have a heap of their own, so that they hold up no others. The zero value
// is empty. Its user bounds and guards it.
type queue struct {
	heap     waiters             // for any worker
	byWorker map[string]*waiters // for one worker; no heap is empty
	len      int
	seq      int64
}

// Len is the number of waiters.
func (q *queue) Len() int { return q.len }

// Push adds a waiter behind all of its priority.
func (q *queue) Push(w *waiter) {
	w.seq = q.nextSeq()
	q.len++
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

// nextSeq numbers arrivals, also those of clients that wait for a lease.
func (q *queue) nextSeq() int64 {
	q.seq++
	return q.seq
}

// PeekFor returns the next waiter for one worker, nil if there is none.
func (q *queue) PeekFor(worker string) *waiter {
	if h := q.byWorker[worker]; h != nil {
		return (*h)[0]
	}
	return nil
}

// All iterates over the waiters, in no order.
func (q *queue) All() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for _, w := range q.heap {
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
	q.len--
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
func (w *waiter) before(o *waiter) bool {
	if w.priority != o.priority {
		return w.priority > o.priority
	}
	return w.seq < o.seq
}

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
