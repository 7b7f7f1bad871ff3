package worker

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/process"
)

const (
	// poolLinger is how long a pool's queue is still served after its last process here has ended: a crash is followed by the next one.
	poolLinger = 10 * time.Second
	// poolRetry is how long after a failed start of a pool's Temporal worker the next attempt comes.
	poolRetry = 2 * time.Second
)

// pools serves the task queue of each pool for as long as the pool has a process on this host.
type pools struct {
	serve  func(pool string) (stop func(), err error)
	linger time.Duration
	log    *slog.Logger

	mu      sync.Mutex
	open    map[string]*poolService
	closing bool
	end     chan struct{}
	work    sync.WaitGroup
}

// poolService is one pool's. Its fields are guarded by the mu of pools.
type poolService struct {
	processes int
	changed   chan struct{} // has a value when processes has changed
}

func newPools(log *slog.Logger, serve func(pool string) (stop func(), err error)) *pools {
	return &pools{serve: serve, linger: poolLinger, log: log, open: map[string]*poolService{}, end: make(chan struct{})}
}

// join counts a process of its pool until it ends.
func (s *pools) join(p *process.Process) {
	pool, _, _ := strings.Cut(p.Worker(), "/")
	s.joinPool(pool, p.AfterEnd)
}

func (s *pools) joinPool(pool string, afterEnd func(func())) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	service := s.open[pool]
	if service == nil {
		service = &poolService{changed: make(chan struct{}, 1)}
		s.open[pool] = service
		s.work.Go(func() { s.run(pool, service) })
	}
	service.count(1)
	s.work.Add(1)
	afterEnd(func() {
		defer s.work.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		service.count(-1)
	})
}

func (p *poolService) count(n int) {
	p.processes += n
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// run starts a pool's Temporal worker and stops it when the pool has had no process here for a while, or when all end.
func (s *pools) run(pool string, service *poolService) {
	var stop func()
	for stop == nil {
		var err error
		if stop, err = s.serve(pool); err == nil {
			break
		}
		s.log.Warn("a pool's task queue cannot be served yet", "pool", pool, "error", err)
		if !s.pause(poolRetry) || s.leave(pool, service) {
			return
		}
	}
	defer func() { stop() }()
	for {
		select {
		case <-s.end:
			return
		case <-service.changed:
		}
		for s.deserted(service) {
			if !s.pause(s.linger) || s.leave(pool, service) {
				return
			}
		}
	}
}

// pause waits, and reports whether the service goes on.
func (s *pools) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.end:
		return false
	case <-timer.C:
		return true
	}
}

func (s *pools) deserted(service *poolService) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return service.processes == 0
}

// leave forgets the pool if it has no process here. One that comes later gets a service of its own.
func (s *pools) leave(pool string, service *poolService) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if service.processes > 0 {
		return false
	}
	delete(s.open, pool)
	return true
}

// close takes no more calls from Temporal. The calls under way end by themselves, or with their processes; wait waits for that.
func (s *pools) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		close(s.end)
	}
}

// wait waits until every pool's Temporal worker has stopped and every process that was counted has ended.
func (s *pools) wait() { s.work.Wait() }
