package tempool

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tempool/tempool/internal/balance"
)

// line is where the checkouts of this client wait for a worker of one pool. They wait at a gateway of the pool. Without
// one they wait here, first come first served, and the first one asks a worker at intervals: each refusal is work for
// Temporal.
type line struct {
	gateways *balance.Balancer
	asking   *semaphore.Weighted // its holder asks workers
	waiting  atomic.Int32
	returned chan int // slots whose leases this client has checked in

	mu        sync.Mutex
	noGateway time.Time // until when no gateway is asked
}

// avoidGateways is how long no gateway is asked after none of them could be.
const avoidGateways = 30 * time.Second

func (l *line) mayAskGateways() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !time.Now().Before(l.noGateway)
}

func (l *line) avoidGateways() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noGateway = time.Now().Add(avoidGateways)
}

// pause waits about d, or until this client has checked in a lease of the pool: then it returns the worker's slot.
func (l *line) pause(ctx context.Context, d time.Duration) (slot int, hinted bool) {
	select {
	case slot = <-l.returned:
		return slot, true
	case <-time.After(d/2 + rand.N(d)):
	case <-ctx.Done():
	}
	return 0, false
}

// checkedIn notifies those that wait in this line that a worker is free.
func (l *line) checkedIn(slot int) {
	if l.waiting.Load() == 0 {
		return
	}
	select {
	case l.returned <- slot:
	default:
	}
}

// lines are the lines of a client, by pool.
type lines struct {
	mu     sync.Mutex
	byPool map[string]*line
}

// of returns the line of a pool; the first call makes it, with these gateways.
func (s *lines) of(pool string, gateways func() *balance.Balancer) *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byPool[pool]
	if l == nil {
		if s.byPool == nil {
			s.byPool = map[string]*line{}
		}
		l = &line{gateways: gateways(), asking: semaphore.NewWeighted(1), returned: make(chan int, 16)}
		s.byPool[pool] = l
	}
	return l
}

// checkedIn notifies those that wait for a pool that its worker in a slot is free.
func (s *lines) checkedIn(pool string, slot int) {
	s.mu.Lock()
	l := s.byPool[pool]
	s.mu.Unlock()
	if l != nil {
		l.checkedIn(slot)
	}
}
