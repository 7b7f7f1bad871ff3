package dispatch

import (
	"time"

	"github.com/tempool/tempool/internal/sleep"
)

// candidate is what the balancer compares of a worker with a free slot.
type candidate struct {
	inFlight int
	score    float64 // 0 to 100
	turn     int64   // see turnLocked
}

const (
	// scoreBand is the difference of scores that matters: the width of a health grade. Within a band workers take turns,
	// so that the load spreads evenly over the healthy ones.
	scoreBand = 20
	// maxCatchUp bounds the calls that a worker which was out of service catches up with.
	maxCatchUp = 64
	// maxSessionLead is how many calls a session's worker may be ahead of the best one and still be preferred while half
	// of the workers or more are busy. Without it, sessions whose workers were chosen by chance pile up on some workers.
	maxSessionLead = 16
)

func (c candidate) band() int { return int(min(c.score, 99.999) / scoreBand) }

// better reports whether a is the better choice than b: fewer calls in flight, else the higher score band, else fewer
// turns.
func better(a, b candidate) bool {
	switch {
	case a.inFlight != b.inFlight:
		return a.inFlight < b.inFlight
	case a.band() != b.band():
		return a.band() > b.band()
	}
	return a.turn < b.turn
}

// prefersSession reports whether a call goes to its session's worker rather than to the best, while busy of all workers
// are busy.
func prefersSession(session, best candidate, busy, all int) bool {
	return 2*busy < all || session.turn <= best.turn+maxSessionLead
}

// turnLocked is the number of turns that count for a worker. One that was out of service does not get all the calls
// that it missed.
func (p *poolState) turnLocked(u *upstream) int64 { return max(u.turn, p.turn-maxCatchUp) }

// turnAfterLocked is the turn with which a worker's next incarnation begins. If it began behind the others, it would
// get all of their calls until it caught up, and where workers are replaced after some number of requests, the replaced
// ones would starve the rest.
func (p *poolState) turnAfterLocked(previous *upstream) int64 {
	if previous != nil {
		return previous.turn
	}
	return p.turn
}

// pickLocked chooses among the workers that the Dispatcher leases and that have a free slot. It returns nil if there is
// none.
func (p *poolState) pickLocked(preferred string, now time.Time) *upstream {
	var best, session *upstream
	var ofBest, ofSession candidate
	busy := 0
	for _, u := range p.order {
		load, open := u.loadLocked(now)
		if load > 0 {
			busy++
		}
		if !open || len(p.reserved) > 0 && p.reserved[u.worker] > 0 {
			continue
		}
		c := candidate{load, u.score, p.turnLocked(u)}
		if best == nil || better(c, ofBest) {
			best, ofBest = u, c
		}
		if preferred != "" && u.worker == preferred {
			session, ofSession = u, c
		}
	}
	if session != nil && prefersSession(ofSession, ofBest, busy, len(p.order)) {
		best = session
	}
	if best != nil {
		p.takeTurnLocked(best)
	}
	return best
}

// openLocked is withSlotLocked for a call that is queued; a reserved worker takes none.
func (p *poolState) openLocked(worker string, now time.Time) *upstream {
	if p.reserved[worker] > 0 {
		return nil
	}
	return p.withSlotLocked(worker, now)
}

// withSlotLocked returns an incarnation of the worker that the Dispatcher leases and that has a free slot, nil if there
// is none.
func (p *poolState) withSlotLocked(worker string, now time.Time) *upstream {
	for _, u := range p.order {
		if u.worker != worker {
			continue
		}
		if _, open := u.loadLocked(now); open {
			return u
		}
	}
	return nil
}

// takeTurnLocked counts a call for which the worker was chosen.
func (p *poolState) takeTurnLocked(u *upstream) {
	u.turn = p.turnLocked(u) + 1
	p.turn = max(p.turn, u.turn)
}

// loadLocked counts the calls on a worker that the Dispatcher leases; open reports whether it takes another one now.
func (u *upstream) loadLocked(now time.Time) (load int, open bool) {
	if !u.servesLocked(now) {
		return 0, false
	}
	load = u.currentLoadLocked()
	return load, load < u.capacity() && !u.pool.rateLimitedLocked(u, now)
}

// currentLoadLocked counts the calls on the worker. A cancelled call keeps its slot until the worker has given it up.
func (u *upstream) currentLoadLocked() int {
	if u.conn != nil {
		return max(u.inFlight, u.conn.InFlight())
	}
	return u.inFlight
}

// servesLocked reports whether calls of the pool may go to the worker at all. A lease that was held long enough or has
// expired counts only while Temporal is lost: it cannot go back, and since the worker is reached through this gateway
// alone, nobody else can have it until Temporal answers again and the lease is renewed or dropped.
func (u *upstream) servesLocked(now time.Time) bool {
	l := u.lease
	if l == nil || !l.own || l.ended || l.fatal != "" || u.draining || u.suspension != nil || u.gone {
		return false
	}
	if l.returnDue(now) && u.inFlight == 0 || now.After(l.refuseAfter) || !now.Before(l.expires) {
		if !u.pool.dispatcher.monitor.lost.Load() {
			return false
		}
	}
	if l.previous != nil && !sleep.Ended(l.previous) {
		return false
	}
	l.previous = nil
	return true
}

// capacity is the number of calls that the worker may have in flight.
func (u *upstream) capacity() int { return max(1, u.spec.Pool.MaxInflight) }
