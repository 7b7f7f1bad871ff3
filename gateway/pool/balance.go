package pool

import "time"

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

// pickLocked chooses an open worker with a free slot for a call, and counts it. It returns nil if there is none.
func (p *poolState) pickLocked(preferred string, now time.Time) *upstream {
	u := p.chooseLocked(preferred, false, now)
	if u != nil {
		p.takeTurnLocked(u)
	}
	return u
}

// chooseLocked chooses among the open workers that have a free slot; a client does not get one that has just refused a
// checkout. It returns nil if there is none.
func (p *poolState) chooseLocked(preferred string, forClient bool, now time.Time) *upstream {
	var best, session *upstream
	var ofBest, ofSession candidate
	busy := 0
	for _, u := range p.order {
		load, open := u.loadLocked(now)
		if load > 0 {
			busy++
		}
		if !open || forClient && (u.returning || now.Before(u.retryAt)) {
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
	return best
}

// withSlotLocked returns an open incarnation of the worker that has a free slot, nil if there is none.
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

// loadLocked counts the calls on a worker that is open; free reports whether it takes another one now.
func (u *upstream) loadLocked(now time.Time) (load int, free bool) {
	if !u.opensLocked() {
		return 0, false
	}
	load = u.currentLoadLocked()
	return load, load < u.capacity() && !u.pool.rateLimitedLocked(u, now)
}

// opensLocked reports whether calls of the pool may go to the worker at all.
func (u *upstream) opensLocked() bool { return u.closedLocked() == open }

// currentLoadLocked counts the calls on the worker. A cancelled call keeps its slot until the worker has given it up.
func (u *upstream) currentLoadLocked() int {
	if u.conn != nil {
		return max(u.inFlight, u.conn.InFlight())
	}
	return u.inFlight
}

// capacity is the number of calls that the worker may have in flight.
func (u *upstream) capacity() int { return max(1, u.spec.Pool.MaxInflight) }
