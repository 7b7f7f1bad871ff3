package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
)

// past is what an incarnation did whose process has ended, kept for who tells its workflow.
type past struct {
	worker      string
	incarnation int64
	calls       tally
	ended       time.Time
}

// pastKept is how long an ended incarnation is told of: longer than a Temporal that is away keeps its Watch from returning, as a rule.
const pastKept = 5 * time.Minute

// remember keeps what the seat counted, under mu.
func (d *desk) remember(s *seat, now time.Time) {
	d.past = slices.DeleteFunc(d.past, func(p past) bool { return now.Sub(p.ended) >= pastKept })
	if s.calls.requests > 0 {
		d.past = append(d.past, past{s.worker, s.incarnation, s.calls, now})
	}
}

// Usage counts the calls of an incarnation since its start, and those in flight.
func (g *Gateway) Usage(worker string, incarnation int64) (usage api.Usage, inFlight int) {
	s := g.seatOf(worker, incarnation)
	if s == nil {
		return g.remembered(worker, incarnation), 0
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	return s.calls.usage(), s.inFlight
}

// Final is Usage of an incarnation whose process has ended. It waits, until ctx ends, for its last calls to be counted.
func (g *Gateway) Final(ctx context.Context, worker string, incarnation int64) api.Usage {
	s := g.seatOf(worker, incarnation)
	if s == nil {
		return g.remembered(worker, incarnation)
	}
	s.desk.mu.Lock()
	quiet := s.whenQuiet()
	s.desk.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	return s.calls.usage()
}

// remembered is the usage of an incarnation that has no seat any more.
func (g *Gateway) remembered(worker string, incarnation int64) api.Usage {
	pool, _, err := api.ParseWorkerName(worker)
	if err != nil {
		return api.Usage{}
	}
	d := g.knownDesk(pool)
	if d == nil {
		return api.Usage{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.past {
		if p.worker == worker && p.incarnation == incarnation {
			return p.calls.usage()
		}
	}
	return api.Usage{}
}
