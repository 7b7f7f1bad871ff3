package balance

import (
	"math/rand/v2"
	"time"

	"github.com/tempool/tempool/api"
)

// Endpoint is one gateway as the calls of one pool see it. Its fields belong to its Balancer.
type Endpoint struct {
	url      string
	workers  int // of the pool on that host, at least 1
	inFlight int // calls of this client
	failures int // in a row
	// backoffUntil is when a gateway that did not answer becomes as good as the others again.
	backoffUntil time.Time
}

// URL is http://HOST:PORT, https://HOST:PORT or unix:PATH.
func (e *Endpoint) URL() string { return e.url }

// An unreachable gateway is avoided for a second, and twice as long after each further failure in a row.
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
)

func (e *Endpoint) markHealthy() { e.failures, e.backoffUntil = 0, time.Time{} }

func (e *Endpoint) markFailed(now time.Time) {
	e.backoffUntil = now.Add(min(minBackoff<<min(e.failures, 10), maxBackoff))
	e.failures++
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
	aBacksOff, bBacksOff := now.Before(a.backoffUntil), now.Before(b.backoffUntil)
	switch {
	case aBacksOff != bBacksOff:
		return bBacksOff
	case aBacksOff:
		return a.backoffUntil.Before(b.backoffUntil)
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
