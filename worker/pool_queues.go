package worker

import (
	"log/slog"
	"sync"
	"time"

	"github.com/tempool/tempool/internal/sleep"
)

const (
	// poolQueueLinger is how long a pool's queue is polled after the pool's last process on this host has ended; after a
	// crash the next process follows soon.
	poolQueueLinger = 10 * time.Second
	// poolQueueRetry is the delay after a failed start of a pool's Temporal worker.
	poolQueueRetry = 2 * time.Second
)

// poolQueues polls the task queue of each pool for as long as the pool has a process on this host.
type poolQueues struct {
	serve  func(pool string) (stop func(), err error)
	linger time.Duration
	log    *slog.Logger

	mu         sync.Mutex
	queues     map[string]*poolQueue
	closing    bool
	closed     chan struct{}
	goroutines sync.WaitGroup
}

// poolQueue is the queue of one pool. poolQueues.mu guards its fields.
type poolQueue struct {
	processes int
	idle      chan struct{} // has a value when the last process has ended
}

func newPoolQueues(log *slog.Logger, serve func(pool string) (stop func(), err error)) *poolQueues {
	return &poolQueues{serve: serve, linger: poolQueueLinger, log: log, queues: map[string]*poolQueue{},
		closed: make(chan struct{})}
}

// add counts a process of a pool until it ends.
func (s *poolQueues) add(pool string, afterEnd func(func())) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	queue := s.queues[pool]
	if queue == nil {
		queue = &poolQueue{idle: make(chan struct{}, 1)}
		s.queues[pool] = queue
		s.goroutines.Go(func() { s.run(pool, queue) })
	}
	queue.processes++
	s.goroutines.Add(1)
	afterEnd(func() {
		defer s.goroutines.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		if queue.processes--; queue.processes == 0 {
			sleep.Wake(queue.idle)
		}
	})
}

// run starts a pool's Temporal worker, and stops it when the pool has had no process here for the linger time, or on
// close.
func (s *poolQueues) run(pool string, queue *poolQueue) {
	var stop func()
	for stop == nil {
		var err error
		if stop, err = s.serve(pool); err == nil {
			break
		}
		s.log.Warn("cannot poll the task queue of a pool; retrying", "pool", pool, "error", err)
		if !sleep.For(s.closed, poolQueueRetry) || s.removeIdle(pool, queue) {
			return
		}
	}
	defer stop()
	for {
		select {
		case <-s.closed:
			return
		case <-queue.idle:
		}
		if !sleep.For(s.closed, s.linger) || s.removeIdle(pool, queue) {
			return
		}
	}
}

// removeIdle removes the pool's queue if the pool has no process here. A later process gets a new queue.
func (s *poolQueues) removeIdle(pool string, queue *poolQueue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if queue.processes > 0 {
		return false
	}
	delete(s.queues, pool)
	return true
}

// close stops polling. It does not wait for the calls in progress; waitClosed does.
func (s *poolQueues) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		close(s.closed)
	}
}

// waitClosed returns when every pool's Temporal worker has stopped and every added process has ended.
func (s *poolQueues) waitClosed() { s.goroutines.Wait() }
