package worker

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/process"
)

const (
	// poolQueueLinger is how long a pool's queue is still served after its last process here has ended: a crash is followed by the next one.
	poolQueueLinger = 10 * time.Second
	// poolQueueRetry is how long after a failed start of a pool's Temporal worker the next attempt comes.
	poolQueueRetry = 2 * time.Second
)

// poolQueues serves the task queue of each pool for as long as the pool has a process on this host.
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

// poolQueue is one pool's. Its fields are guarded by the mu of pools.
type poolQueue struct {
	processes int
	changed   chan struct{} // has a value when processes has changed
}

func newPoolQueues(log *slog.Logger, serve func(pool string) (stop func(), err error)) *poolQueues {
	return &poolQueues{serve: serve, linger: poolQueueLinger, log: log, queues: map[string]*poolQueue{}, closed: make(chan struct{})}
}

// add counts a process of its pool until it ends.
func (s *poolQueues) add(p *process.Process) {
	pool, _, _ := strings.Cut(p.Worker(), "/")
	s.addPool(pool, p.AfterEnd)
}

func (s *poolQueues) addPool(pool string, afterEnd func(func())) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	service := s.queues[pool]
	if service == nil {
		service = &poolQueue{changed: make(chan struct{}, 1)}
		s.queues[pool] = service
		s.goroutines.Go(func() { s.run(pool, service) })
	}
	service.addProcesses(1)
	s.goroutines.Add(1)
	afterEnd(func() {
		defer s.goroutines.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		service.addProcesses(-1)
	})
}

func (p *poolQueue) addProcesses(n int) {
	p.processes += n
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// run starts a pool's Temporal worker and stops it when the pool has had no process here for a while, or when all end.
func (s *poolQueues) run(pool string, service *poolQueue) {
	var stop func()
	for stop == nil {
		var err error
		if stop, err = s.serve(pool); err == nil {
			break
		}
		s.log.Warn("a pool's task queue cannot be served yet", "pool", pool, "error", err)
		if !s.wait(poolQueueRetry) || s.remove(pool, service) {
			return
		}
	}
	defer func() { stop() }()
	for {
		select {
		case <-s.closed:
			return
		case <-service.changed:
		}
		for s.isIdle(service) {
			if !s.wait(s.linger) || s.remove(pool, service) {
				return
			}
		}
	}
}

// wait waits, and reports whether the service goes on.
func (s *poolQueues) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.closed:
		return false
	case <-timer.C:
		return true
	}
}

func (s *poolQueues) isIdle(service *poolQueue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return service.processes == 0
}

// remove forgets the pool if it has no process here. One that comes later gets a service of its own.
func (s *poolQueues) remove(pool string, service *poolQueue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if service.processes > 0 {
		return false
	}
	delete(s.queues, pool)
	return true
}

// close takes no more calls from Temporal. The calls under way end by themselves, or with their processes; wait waits for that.
func (s *poolQueues) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		close(s.closed)
	}
}

// waitClosed waits until every pool's Temporal worker has stopped and every process that was counted has ended.
func (s *poolQueues) waitClosed() { s.goroutines.Wait() }
