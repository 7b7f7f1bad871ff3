package tempool

import (
	"math/rand/v2"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// endpointState is one gateway as the calls of one pool see it.
type endpointState struct {
	endpoint string
	workers  int // of the pool there, at least 1
	inFlight int // calls of this client
	failures int // in a row
	// backoffUntil is when a gateway that did not answer is asked again before others.
	backoffUntil time.Time
}

// Rests of a gateway that could not be reached: the first, and the longest after more failures in a row.
const (
	endpointBackoff    = time.Second
	endpointMaxBackoff = 30 * time.Second
)

// markHealthy notes that the gateway is there.
func (l *endpointState) markHealthy() { l.failures, l.backoffUntil = 0, time.Time{} }

// markFailed notes that the gateway could not be reached.
func (l *endpointState) markFailed(now time.Time) {
	l.backoffUntil = now.Add(min(endpointBackoff<<min(l.failures, 10), endpointMaxBackoff))
	l.failures++
}

// pickEndpoint chooses among the lanes that passed does not name: the one with the fewest calls in flight for each worker, with equals in
// the order of their workers at random; those that rest only when there is no other. nil means that none is left.
func pickEndpoint(lanes []*endpointState, passed map[string]bool, now time.Time) *endpointState {
	var best *endpointState
	seen := 0 // workers of those that are as good as best
	for _, l := range lanes {
		if passed[l.endpoint] {
			continue
		}
		switch {
		case best == nil || betterEndpoint(l, best, now):
			best, seen = l, l.workers
		case !betterEndpoint(best, l, now):
			if seen += l.workers; rand.N(seen) < l.workers {
				best = l
			}
		}
	}
	return best
}

// betterEndpoint reports whether a call goes to a rather than to b.
func betterEndpoint(a, b *endpointState, now time.Time) bool {
	aRests, bRests := now.Before(a.backoffUntil), now.Before(b.backoffUntil)
	switch {
	case aRests != bRests:
		return bRests
	case aRests:
		return a.backoffUntil.Before(b.backoffUntil)
	}
	return a.inFlight*b.workers < b.inFlight*a.workers
}

// endpointsOf are the gateways that host the workers of a roster, with what before knew of them. Those whose workers serve come alone;
// where none serves, those whose workers may serve again.
func endpointsOf(roster []api.RosterEntry, before []*endpointState) []*endpointState {
	serving, others := map[string]int{}, map[string]int{}
	var order []string
	for _, entry := range roster {
		if entry.Endpoint == "" || entry.Gone || entry.Leaving || entry.Resting {
			continue
		}
		if serving[entry.Endpoint]+others[entry.Endpoint] == 0 {
			order = append(order, entry.Endpoint)
		}
		if inService(entry.State) {
			serving[entry.Endpoint]++
		} else {
			others[entry.Endpoint]++
		}
	}
	if len(serving) == 0 {
		serving = others
	}
	var lanes []*endpointState
	for _, endpoint := range order {
		if serving[endpoint] > 0 {
			lanes = append(lanes, endpointFor(endpoint, serving[endpoint], before))
		}
	}
	return lanes
}

// endpointFor is the lane to an endpoint that there was before, or a new one.
func endpointFor(endpoint string, workers int, before []*endpointState) *endpointState {
	for _, l := range before {
		if l.endpoint == endpoint {
			l.workers = workers
			return l
		}
	}
	return &endpointState{endpoint: endpoint, workers: workers}
}

// inService reports whether a worker in this state serves calls.
func inService(s lifecycle.State) bool { return s == lifecycle.Ready || s == lifecycle.Busy }
