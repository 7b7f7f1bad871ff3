package tempool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

const (
	// rosterFresh is how old a roster may be before a call has it read again, behind the call's back.
	rosterFresh = 2 * time.Second
	// rosterPause is the least time between two readings, whatever happens.
	rosterPause = 250 * time.Millisecond
)

// fleet is the gateways that carry the calls of one pool, as the pool's roster last named them. The roster is read when it is
// needed first, and again while calls go on; if it cannot be read, the gateways that are known stay. It is safe for concurrent use.
type balancer struct {
	read  func(context.Context) (api.PoolStatus, error) // nil if the gateways are given and no roster is asked
	begin func(work func(context.Context)) bool         // runs work in the client's life; false once that is over
	now   func() time.Time

	mu        sync.Mutex
	endpoints []*endpointState
	failure   error // of the last reading
	readAt    time.Time
	reading   chan struct{} // closed when the reading under way is over; nil if there is none
}

// given is a fleet of these gateways and no others.
func newFixedBalancer(endpoints []string) *balancer {
	f := &balancer{now: time.Now}
	for _, endpoint := range endpoints {
		f.endpoints = append(f.endpoints, endpointFor(endpoint, 1, f.endpoints))
	}
	return f
}

// maxGiven bounds the gateways that a client of given ones comes to know.
const maxGiven = 256

// add adds gateways that another one named, unless the roster is who names them.
func (f *balancer) add(endpoints []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, endpoint := range endpoints {
		known := slices.ContainsFunc(f.endpoints, func(l *endpointState) bool { return l.endpoint == endpoint })
		if f.read == nil && !known && endpoint != "" && len(f.endpoints) < maxGiven {
			f.endpoints = append(f.endpoints, &endpointState{endpoint: endpoint, workers: 1})
		}
	}
}

// acquire picks the gateway for a call and counts the call in, which end counts out. No gateway at all is the failure of the roster's
// reading, or CodeNoWorkers; nil without an error means that passed names all there are.
func (f *balancer) acquire(ctx context.Context, passed map[string]bool) (*endpointState, error) {
	for {
		f.mu.Lock()
		now := f.now()
		if f.read != nil && now.Sub(f.readAt) > rosterFresh && f.reading == nil {
			f.startRefresh()
		}
		if len(f.endpoints) > 0 || f.reading == nil {
			l, err := f.pick(passed, now)
			f.mu.Unlock()
			return l, err
		}
		reading := f.reading
		f.mu.Unlock()
		if err := waitClosed(ctx, reading); err != nil {
			return nil, err
		}
	}
}

// pick is take with mu held.
func (f *balancer) pick(passed map[string]bool, now time.Time) (*endpointState, error) {
	if len(f.endpoints) == 0 {
		if f.failure != nil {
			return nil, f.failure
		}
		return nil, api.Errorf(api.CodeNoWorkers, "no worker of the pool has a gateway yet; ctl ps shows how the workers fare").After(time.Second)
	}
	l := pickEndpoint(f.endpoints, passed, now)
	if l != nil {
		l.inFlight++
	}
	return l, nil
}

// release counts a call out that ended with err, and notes what that tells of its gateway.
func (f *balancer) release(l *endpointState, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l.inFlight--
	outOfTime := errors.Is(err, context.DeadlineExceeded) // the caller's, not what a gateway says
	switch {
	case api.CodeOf(err) == api.CodeUnavailable, outOfTime && !mayHaveStarted(err): // as with a host that swallows what is sent to it
		l.markFailed(f.now())
	case outOfTime, errors.Is(err, context.Canceled): // it may be there or not
	default:
		l.markHealthy()
	}
}

// refresh has the roster read again, unless that was done just now, and waits for it.
func (f *balancer) refresh(ctx context.Context) error {
	f.mu.Lock()
	if f.read != nil && f.reading == nil && f.now().Sub(f.readAt) > rosterPause {
		f.startRefresh()
	}
	reading := f.reading
	f.mu.Unlock()
	if reading == nil {
		return nil
	}
	return waitClosed(ctx, reading)
}

// startRefresh begins a reading of the roster, with mu held.
func (f *balancer) startRefresh() {
	over := make(chan struct{})
	f.reading = over
	if !f.begin(func(ctx context.Context) { f.readRoster(ctx, over) }) {
		f.reading, f.readAt, f.failure = nil, f.now(), errClientClosed
	}
}

func (f *balancer) readRoster(ctx context.Context, over chan struct{}) {
	status, err := f.read(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer close(over)
	f.reading, f.readAt, f.failure = nil, f.now(), err
	switch {
	case err == nil:
		f.endpoints = endpointsOf(status.Workers, f.endpoints)
	case api.CodeOf(err) == api.CodePoolNotFound:
		f.endpoints = nil
	}
}

var errClientClosed = api.Errorf(api.CodeUnavailable, "this client is closed")

// waitClosed waits for a channel to be closed.
func waitClosed(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return transportError(ctx, ctx.Err(), "the pool's gateways were not found out in time", false)
	}
}
