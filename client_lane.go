package tempool

import (
	"math/rand/v2"
	"time"

	"github.com/tempool/tempool/lifecycle"
)

// lane is one gateway as the calls of one pool see it.
type lane struct {
	endpoint string
	workers  int // of the pool there, at least 1
	inFlight int // calls of this client
	failures int // in a row
	// restUntil is when a gateway that did not answer is asked again before others.
	restUntil time.Time
}

// Rests of a gateway that could not be reached: the first, and the longest after more failures in a row.
const (
	laneRest    = time.Second
	laneMaxRest = 30 * time.Second
)

// answered notes that the gateway is there.
func (l *lane) answered() { l.failures, l.restUntil = 0, time.Time{} }

// missed notes that the gateway could not be reached.
func (l *lane) missed(now time.Time) {
	l.restUntil = now.Add(min(laneRest<<min(l.failures, 10), laneMaxRest))
	l.failures++
}

// pickLane chooses among the lanes that passed does not name: the one with the fewest calls in flight for each worker, with equals in
// the order of their workers at random; those that rest only when there is no other. nil means that none is left.
func pickLane(lanes []*lane, passed map[string]bool, now time.Time) *lane {
	var best *lane
	seen := 0 // workers of those that are as good as best
	for _, l := range lanes {
		if passed[l.endpoint] {
			continue
		}
		switch {
		case best == nil || betterLane(l, best, now):
			best, seen = l, l.workers
		case !betterLane(best, l, now):
			if seen += l.workers; rand.N(seen) < l.workers {
				best = l
			}
		}
	}
	return best
}

// betterLane reports whether a call goes to a rather than to b.
func betterLane(a, b *lane, now time.Time) bool {
	aRests, bRests := now.Before(a.restUntil), now.Before(b.restUntil)
	switch {
	case aRests != bRests:
		return bRests
	case aRests:
		return a.restUntil.Before(b.restUntil)
	}
	return a.inFlight*b.workers < b.inFlight*a.workers
}

// lanesOf are the gateways that host the workers of a roster, with what before knew of them. Those whose workers serve come alone;
// where none serves, those whose workers may serve again.
func lanesOf(roster []RosterEntry, before []*lane) []*lane {
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
	var lanes []*lane
	for _, endpoint := range order {
		if serving[endpoint] > 0 {
			lanes = append(lanes, laneTo(endpoint, serving[endpoint], before))
		}
	}
	return lanes
}

// laneTo is the lane to an endpoint that there was before, or a new one.
func laneTo(endpoint string, workers int, before []*lane) *lane {
	for _, l := range before {
		if l.endpoint == endpoint {
			l.workers = workers
			return l
		}
	}
	return &lane{endpoint: endpoint, workers: workers}
}

// inService reports whether a worker in this state serves calls.
func inService(s lifecycle.State) bool { return s == lifecycle.Ready || s == lifecycle.Busy }
