package gateway

import (
	"container/heap"
	"sync"
	"time"
)

// Priorities of calls: 9 goes first, equals go in the order of their coming, and who says nothing has the default.
const (
	MinPriority     = 0
	MaxPriority     = 9
	DefaultPriority = 0
)

// waiter is a call that waits for a worker.
type waiter struct {
	flight   *flight
	session  string
	priority int
	seq      int64
	index    int        // in the heap; -1 when it is not there
	placed   chan error // gets one value: nil when the flight has begun, or why it never will; none if somebody else has sent the request
	timer    *time.Timer
}

// idleWaiters are kept because a waiter's channel and timer cost more than all else of a wait.
var idleWaiters = sync.Pool{New: func() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &waiter{placed: make(chan error, 1), timer: timer}
}}

func newWaiter(f *flight, session string, priority int) *waiter {
	w := idleWaiters.Get().(*waiter)
	w.flight, w.session, w.priority, w.seq, w.index = f, session, priority, 0, -1
	return w
}

// recycle keeps the waiter for the next call. It must be out of the queue, and what placed was to get have been taken.
func (w *waiter) recycle() {
	w.timer.Stop()
	w.flight = nil
	idleWaiters.Put(w)
}

// refuse tells a waiter that is out of the queue that it waits in vain.
func (w *waiter) refuse(err error) { w.placed <- err }

// queue orders waiters by priority, then by arrival. Its user bounds it and guards it.
type queue struct {
	heap waiters
	seq  int64
}

func newQueue() *queue { return &queue{} }

// Len counts the waiters.
func (q *queue) Len() int { return len(q.heap) }

// Push adds a waiter behind all of its priority.
func (q *queue) Push(w *waiter) {
	q.seq++
	w.seq = q.seq
	heap.Push(&q.heap, w)
}

// Peek returns who is next, or nil.
func (q *queue) Peek() *waiter {
	if len(q.heap) == 0 {
		return nil
	}
	return q.heap[0]
}

// Pop takes out who is next; nil when nobody waits.
func (q *queue) Pop() *waiter {
	if len(q.heap) == 0 {
		return nil
	}
	return heap.Pop(&q.heap).(*waiter)
}

// Remove takes out a waiter that leaves; false means that it has been taken out before.
func (q *queue) Remove(w *waiter) bool {
	if w.index < 0 {
		return false
	}
	heap.Remove(&q.heap, w.index)
	return true
}

type waiters []*waiter

func (h waiters) Len() int { return len(h) }

func (h waiters) Less(i, j int) bool {
	if h[i].priority != h[j].priority {
		return h[i].priority > h[j].priority
	}
	return h[i].seq < h[j].seq
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
