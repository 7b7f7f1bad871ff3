package tempool

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/balance"
)

// line is where the checkouts of this client wait for a worker of one pool. They wait at a gateway of the pool. Without one they wait
// here, first come first served, and the first one asks a worker now and then: each refusal is work for Temporal.
type line struct {
	gateways *balance.Balancer
	turn     *semaphore.Weighted // whoever holds it asks workers
	waiting  atomic.Int32
	returned chan int // slots whose leases this client has checked in

	mu        sync.Mutex
	noGateway time.Time // until when no gateway is asked
}

const (
	// pollEach is the time between two attempts for each waiting checkout, and pollLeast the least for all of them together. The first
	// attempts of a checkout are closer together.
	pollEach   = 2 * time.Second
	pollLeast  = 50 * time.Millisecond
	pollFirst  = 100 * time.Millisecond
	rosterLife = 15 * time.Second
	// avoidGateways is how long no gateway is asked after none of them could be.
	avoidGateways = 30 * time.Second
)

func (p *Pool) line() *line {
	c := p.client
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lines[p.name]
	if l == nil {
		l = &line{gateways: balance.New(c.Pool(p.name).Running, c.goBackground), turn: semaphore.NewWeighted(1), returned: make(chan int, 16)}
		c.lines[p.name] = l
	}
	return l
}

// waitInLine waits at a gateway, or asks workers in turn, until ctx ends. attempt bounds the requests.
func (p *Pool) waitInLine(ctx, attempt context.Context, o CheckoutOptions) (*Lease, error) {
	l := p.line()
	if l.mayAskGateways() {
		lease, err := p.checkoutByGateway(attempt, waitUntil(ctx), l.gateways, o)
		if err == nil || ctx.Err() != nil || waited(err) {
			return lease, err
		}
		l.avoidGateways() // not reached, or without the right to take leases there
	}
	return p.pollWorkers(ctx, attempt, l, o)
}

// waited reports whether a gateway took part in the wait and found no worker.
func waited(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeQueueTimeout, api.CodeQueueFull, api.CodeNoWorkers, api.CodeBusy:
		return true
	}
	return false
}

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

// pollWorkers waits for its turn and then asks one worker after another, with pauses, until one grants a lease, ctx ends, or gateways may
// be asked again.
func (p *Pool) pollWorkers(ctx, attempt context.Context, l *line, o CheckoutOptions) (*Lease, error) {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	refusal := error(api.Errorf(api.CodeBusy, "other checkouts of this client wait for pool %s", p.name))
	if l.turn.Acquire(ctx, 1) != nil {
		return nil, refusal
	}
	defer l.turn.Release(1)
	var workers []api.RosterEntry
	var readAt time.Time
	pause := pollFirst
	for !l.mayAskGateways() {
		slot, hinted := l.pause(ctx, pause)
		if ctx.Err() != nil {
			return nil, refusal
		}
		pause = min(2*pause, max(pollEach/time.Duration(max(1, l.waiting.Load())), pollLeast))
		if !hinted {
			if len(workers) == 0 || time.Since(readAt) > rosterLife {
				status, err := p.Running(attempt)
				if err != nil {
					return nil, err
				}
				workers, readAt = candidates(status.Workers), time.Now()
				if len(workers) == 0 {
					p.awaitStart(ctx, status)
					refusal = api.Errorf(api.CodeNoWorkers, "pool %s has no worker in service (0 of %d)", p.name, status.Size)
					continue
				}
			}
			slot, workers = workers[0].Slot, workers[1:]
		}
		lease, err := p.CheckoutOnce(attempt, slot, o)
		if err == nil || !api.CodeOf(err).Retryable() && api.CodeOf(err) != api.CodeWorkerNotFound {
			return lease, err
		}
		refusal = err
	}
	return nil, refusal
}

// pause waits about d, or until this client has checked in a lease of the pool: then it returns the worker's slot.
func (l *line) pause(ctx context.Context, d time.Duration) (slot int, hinted bool) {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case slot = <-l.returned:
		return slot, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return 0, false
}

// checkedIn tells those that wait in this client that a worker is free.
func (c *Client) checkedIn(ref api.LeaseRef) {
	c.mu.Lock()
	l := c.lines[ref.Pool]
	c.mu.Unlock()
	if l == nil || l.waiting.Load() == 0 {
		return
	}
	select {
	case l.returned <- ref.Slot:
	default:
	}
}
