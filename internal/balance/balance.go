// Package balance spreads the calls of one pool over the gateways of its hosts.
package balance

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

const (
	// rosterMaxAge is how old a roster may be before a call triggers a refresh in the background.
	rosterMaxAge = 2 * time.Second
	// rosterMinInterval is the least time between two refreshes.
	rosterMinInterval = 250 * time.Millisecond
	// maxEndpoints bounds what Add adds.
	maxEndpoints = 256
)

// Balancer knows the gateways that carry the calls of one pool and chooses one for each call. It reads the pool's
// roster at the first call, and again while there are calls; while the roster cannot be read, the known gateways stay
// in use. It is safe for concurrent use.
type Balancer struct {
	read  func(context.Context) (api.PoolStatus, error) // nil: the endpoints are fixed
	start func(work func(context.Context)) error        // runs work in the background
	now   func() time.Time

	mu         sync.Mutex
	endpoints  []*Endpoint
	failure    error // of the last refresh
	readAt     time.Time
	refreshing chan struct{} // closed at the end of the refresh in progress; nil if there is none
}

// New returns a Balancer that gets its gateways from read, which start runs in the background. An error of start counts
// as one of read.
func New(read func(context.Context) (api.PoolStatus, error), start func(work func(context.Context)) error) *Balancer {
	return &Balancer{read: read, start: start, now: time.Now}
}

// NewFixed returns a Balancer for these gateways; only Add adds others.
func NewFixed(endpoints []string) *Balancer {
	b := &Balancer{now: time.Now}
	for _, url := range endpoints {
		b.endpoints = append(b.endpoints, reuse(url, 1, b.endpoints))
	}
	return b
}

// Add adds gateways that another gateway referred to, up to 256 in all, each until it has failed three times in a row
// while one of the first ones, which may refer to it again, has not. A Balancer with a roster ignores them.
func (b *Balancer) Add(endpoints []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range endpoints {
		known := slices.ContainsFunc(b.endpoints, func(e *Endpoint) bool { return e.url == url })
		if b.read == nil && !known && url != "" && len(b.endpoints) < maxEndpoints {
			b.endpoints = append(b.endpoints, &Endpoint{url: url, workers: 1, added: true})
		}
	}
}

// Acquire chooses the gateway for a call and counts the call as in flight until Release. nil without an error means
// that tried names all gateways. If no gateway is known, the error is that of the last refresh, or CodeNoWorkers.
func (b *Balancer) Acquire(ctx context.Context, tried map[string]bool) (*Endpoint, error) {
	for {
		b.mu.Lock()
		now := b.now()
		if b.read != nil && now.Sub(b.readAt) > rosterMaxAge && b.refreshing == nil {
			b.startRefreshLocked()
		}
		if len(b.endpoints) > 0 || b.refreshing == nil {
			e, err := b.acquireLocked(tried, now)
			b.mu.Unlock()
			return e, err
		}
		refreshing := b.refreshing
		b.mu.Unlock()
		if err := waitClosed(ctx, refreshing); err != nil {
			return nil, err
		}
	}
}

func (b *Balancer) acquireLocked(tried map[string]bool, now time.Time) (*Endpoint, error) {
	if len(b.endpoints) == 0 {
		if b.failure != nil {
			return nil, b.failure
		}
		return nil, api.Errorf(api.CodeNoWorkers, "no host runs a process of the pool; tempool ps shows "+
			"the states of its workers").After(time.Second)
	}
	e := pick(b.endpoints, tried, now)
	if e != nil {
		e.inFlight++
	}
	return e, nil
}

// Release ends a call that returned err, and records what err says about the gateway's health.
func (b *Balancer) Release(e *Endpoint, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.inFlight--
	timedOut := errors.Is(err, context.DeadlineExceeded) // in this client; a gateway's own timeout wraps nothing
	switch {
	case api.CodeOf(err) == api.CodeUnavailable, timedOut && !transport.MayHaveStarted(err): // the host may drop packets
		e.backoff.Fail(b.now())
		if e.added && e.backoff.failures >= 3 && slices.ContainsFunc(b.endpoints, (*Endpoint).refers) {
			b.endpoints = slices.DeleteFunc(b.endpoints, func(other *Endpoint) bool { return other == e })
		}
	case timedOut, errors.Is(err, context.Canceled): // says nothing about the gateway
	default:
		e.backoff = Backoff{}
	}
}

// Refresh reads the roster and waits for the result, unless the last refresh ended less than 250 ms ago.
func (b *Balancer) Refresh(ctx context.Context) error {
	b.mu.Lock()
	if b.read != nil && b.refreshing == nil && b.now().Sub(b.readAt) > rosterMinInterval {
		b.startRefreshLocked()
	}
	refreshing := b.refreshing
	b.mu.Unlock()
	if refreshing == nil {
		return nil
	}
	return waitClosed(ctx, refreshing)
}

func (b *Balancer) startRefreshLocked() {
	done := make(chan struct{})
	b.refreshing = done
	if err := b.start(func(ctx context.Context) { b.refresh(ctx, done) }); err != nil {
		b.refreshing, b.readAt, b.failure = nil, b.now(), err
	}
}

func (b *Balancer) refresh(ctx context.Context, done chan struct{}) {
	status, err := b.read(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	defer close(done)
	b.refreshing, b.readAt, b.failure = nil, b.now(), err
	switch {
	case err == nil:
		b.endpoints = fromRoster(status.Workers, b.endpoints)
	case api.CodeOf(err) == api.CodePoolNotFound:
		b.endpoints = nil
	}
}

func waitClosed(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return transport.Error(ctx, ctx.Err(), "waiting for the pool's roster", false)
	}
}

// Endpoint is one gateway as the calls of one pool see it. Its fields belong to its Balancer.
type Endpoint struct {
	url      string
	workers  int // of the pool on that host, at least 1
	inFlight int // calls of this client
	added    bool
	backoff  Backoff
}

// URL is http://HOST:PORT, https://HOST:PORT or unix:PATH.
func (e *Endpoint) URL() string { return e.url }

// refers reports whether the endpoint is one of the first ones, and its last call reached it.
func (e *Endpoint) refers() bool { return !e.added && e.backoff.failures == 0 }

// An unreachable gateway is avoided for a second, and twice as long after each further failure in a row.
const (
	MinBackoff = time.Second
	maxBackoff = 30 * time.Second
)

// Backoff is that of a gateway that does not answer. The zero value is none.
type Backoff struct {
	failures int // in a row
	until    time.Time
}

// Left is how long the gateway is still to be avoided; 0 if it is not.
func (b Backoff) Left(now time.Time) time.Duration { return max(0, b.until.Sub(now)) }

// Fail begins or extends the backoff. It reports whether this is the first failure.
func (b *Backoff) Fail(now time.Time) (first bool) {
	b.until = now.Add(min(MinBackoff<<min(b.failures, 10), maxBackoff))
	b.failures++
	return b.failures == 1
}

// pick chooses the endpoint with the fewest calls in flight for each worker, among those not tried. It breaks ties at
// random in proportion to the workers. An endpoint in backoff is chosen only when there is no other. nil means that all
// were tried.
func pick(endpoints []*Endpoint, tried map[string]bool, now time.Time) *Endpoint {
	var best *Endpoint
	tiedWorkers := 0
	for _, e := range endpoints {
		if tried[e.url] {
			continue
		}
		switch {
		case best == nil || better(e, best, now):
			best, tiedWorkers = e, e.workers
		case !better(best, e, now):
			if tiedWorkers += e.workers; rand.N(tiedWorkers) < e.workers {
				best = e
			}
		}
	}
	return best
}

// better reports whether a call goes to a rather than to b.
func better(a, b *Endpoint, now time.Time) bool {
	aBacksOff, bBacksOff := a.backoff.Left(now) > 0, b.backoff.Left(now) > 0
	switch {
	case aBacksOff != bBacksOff:
		return bBacksOff
	case aBacksOff:
		return a.backoff.until.Before(b.backoff.until)
	}
	return a.inFlight*b.workers < b.inFlight*a.workers
}

// fromRoster returns the endpoints of the hosts in a roster, with the counters they had before. If any worker is in
// service, only the endpoints of such workers count; otherwise those whose workers may come back.
func fromRoster(roster []api.RosterEntry, before []*Endpoint) []*Endpoint {
	inService, others := map[string]int{}, map[string]int{}
	var order []string
	for _, entry := range roster {
		if entry.Endpoint == "" || entry.Gone || entry.Removing || entry.Resting {
			continue
		}
		if inService[entry.Endpoint]+others[entry.Endpoint] == 0 {
			order = append(order, entry.Endpoint)
		}
		if entry.State.InService() {
			inService[entry.Endpoint]++
		} else {
			others[entry.Endpoint]++
		}
	}
	if len(inService) == 0 {
		inService = others
	}
	var endpoints []*Endpoint
	for _, url := range order {
		if workers := inService[url]; workers > 0 {
			endpoints = append(endpoints, reuse(url, workers, before))
		}
	}
	return endpoints
}

// reuse returns the endpoint that was known before, or a new one.
func reuse(url string, workers int, before []*Endpoint) *Endpoint {
	for _, e := range before {
		if e.url == url {
			e.workers = workers
			return e
		}
	}
	return &Endpoint{url: url, workers: workers}
}
