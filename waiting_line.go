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

// line returns the line of the pool.
func (p *Pool) line() *line {
	c := p.client
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lines[p.name]
	if l == nil {
		l = &line{gateways: balance.New(p.Running, c.goBackground), asking: semaphore.NewWeighted(1),
			returned: make(chan int, 16)}
		c.lines[p.name] = l
	}
	return l
}
