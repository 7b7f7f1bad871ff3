package gateway

import "time"

// candidate is what a pick weighs of one worker that may take a call.
type candidate struct {
	inFlight int
	score    float64 // 0 to 100
	turn     int64   // calls it was picked for, see desk.turnOf
}

const (
	// scoreBand is how far scores must be apart to matter: the width of a health grade. Within a band workers take turns, so that
	// the load spreads evenly over the fit.
	scoreBand = 20
	// catchUp is how many calls a worker that was out of service may be behind the others and catch up with.
	catchUp = 64
	// sessionLead is how many calls a session's worker may be ahead of the pick without it, and still be preferred while half of the
	// workers are busy or more: sessions whose workers were chosen by chance would else pile up on some.
	sessionLead = 16
)

func (c candidate) band() int { return int(min(c.score, 99.999) / scoreBand) }

// better reports whether a call should rather go to a than to b: the one with the fewest calls in flight, else the fittest, else the
// one that has had the fewest.
func better(a, b candidate) bool {
	switch {
	case a.inFlight != b.inFlight:
		return a.inFlight < b.inFlight
	case a.band() != b.band():
		return a.band() > b.band()
	}
	return a.turn < b.turn
}

// sticks reports whether a call goes to its session's worker rather than to the best, when so many of all workers are busy.
func sticks(preferred, best candidate, busy, all int) bool {
	return 2*busy < all || preferred.turn <= best.turn+sessionLead
}

// turnOf is how many calls a seat counts as having been picked for. Who was away long is not given all it has missed at once.
func (d *desk) turnOf(s *seat) int64 { return max(s.turn, d.turn-catchUp) }

// turnAfter is where a seat that follows another of its worker begins. One that began behind the others would be given their calls until
// it has had as many: where workers are replaced after some number of requests, those replaced would keep the rest without any.
func (d *desk) turnAfter(old *seat) int64 {
	if old != nil {
		return old.turn
	}
	return d.turn
}

// pick chooses among the workers leased by the gateway that have room, under mu; nil when there is none.
func (d *desk) pick(preferred string, now time.Time) *seat {
	var best, session *seat
	var chosen, wanted candidate
	busy := 0
	for _, s := range d.order {
		load, open := s.load(now)
		if load > 0 {
			busy++
		}
		if !open || len(d.aimed) > 0 && d.aimed[s.worker] > 0 {
			continue
		}
		c := candidate{load, s.score, d.turnOf(s)}
		if best == nil || better(c, chosen) {
			best, chosen = s, c
		}
		if preferred != "" && s.worker == preferred {
			session, wanted = s, c
		}
	}
	if session != nil && sticks(wanted, chosen, busy, len(d.order)) {
		best, chosen = session, wanted
	}
	if best != nil {
		best.turn = chosen.turn + 1
		d.turn = max(d.turn, best.turn)
	}
	return best
}

// load counts the calls that a worker leased by the gateway is busy with; false means that it takes no further one now.
func (s *seat) load(now time.Time) (int, bool) {
	if !s.serving(now) {
		return 0, false
	}
	load := s.inFlight
	if s.conn != nil {
		load = max(load, s.conn.InFlight()) // cancelled calls keep their place until the worker has given them up
	}
	return load, load < s.capacity() && !s.desk.limited(s, now)
}

// serving reports whether the gateway may put calls of its own on the worker at all. A lease held long enough, or past its expiry,
// counts only while Temporal is lost: it cannot go back, and the worker is reached through this gateway alone, so nobody else can
// have it until Temporal is back and it has been renewed, or not.
func (s *seat) serving(now time.Time) bool {
	gr := s.grant
	if gr == nil || !gr.ours || gr.ended || gr.fatal != "" || s.draining || s.gone {
		return false
	}
	if gr.tired(now) && s.inFlight == 0 || now.After(gr.spentAt) || !now.Before(gr.lease.ExpiresAt) {
		if !s.desk.gateway.contact.lost.Load() {
			return false
		}
	}
	if gr.before == nil {
		return true
	}
	select {
	case <-gr.before:
		gr.before = nil
		return true
	default:
		return false
	}
}

// tired reports whether the lease was held long enough.
func (gr *grant) tired(now time.Time) bool { return now.After(gr.tiredAt) }

// capacity is how many calls the worker may have in flight.
func (s *seat) capacity() int { return max(1, s.spec.Pool.MaxInflight) }
