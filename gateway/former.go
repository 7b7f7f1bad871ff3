package gateway

import (
	"slices"
	"time"

	"github.com/tempool/tempool/api"
)

// A worker may have two processes for a moment: while one is to take over from another (rotation.surge), and while the one before
// finishes its calls. desk.seats has the newest of each worker, desk.former the older ones whose process lives on. An older one
// goes on serving under its lease until it is drained or a newer lease of the worker is seen.

// seatAt returns the seat of exactly this incarnation, under mu; nil if there is none.
func (d *desk) seatAt(worker string, incarnation int64) *seat {
	if s := d.seats[worker]; s != nil && s.incarnation == incarnation {
		return s
	}
	for _, s := range d.former {
		if s.worker == worker && s.incarnation == incarnation {
			return s
		}
	}
	return nil
}

// siblings are the seats of the worker's other incarnations, under mu.
func (d *desk) siblings(s *seat) []*seat {
	var others []*seat
	if newest := d.seats[s.worker]; newest != nil && newest != s {
		others = append(others, newest)
	}
	for _, f := range d.former {
		if f.worker == s.worker && f != s {
			others = append(others, f)
		}
	}
	return others
}

// spokenFor reports whether a checkout of the seat's worker is better left to another of its incarnations, under mu: one is on its
// way, or an older one is in service still. Whichever incarnation the lease is for gets it.
func (d *desk) spokenFor(s *seat) bool {
	if len(d.former) == 0 {
		return false
	}
	return slices.ContainsFunc(d.siblings(s), func(o *seat) bool {
		return o.asking || o.incarnation < s.incarnation && !o.gone && !o.draining
	})
}

// retire takes the older incarnations of a worker out of service when a lease of a newer one counts, under mu: their calls in
// flight finish, clients' leases on them have ended, and the workflow's drain collects the gateway's own.
func (d *desk) retire(s *seat) {
	for _, o := range d.siblings(s) {
		if o.incarnation >= s.incarnation {
			continue
		}
		o.draining = true
		if o.grant != nil && !o.grant.ours {
			o.endGrant("a newer lease was granted")
		}
	}
}

// score asks how fit the workers are, under mu; the answers count for scoreEvery.
func (d *desk) score(now time.Time) {
	ask := d.gateway.config.Score
	if ask == nil || now.Sub(d.scored) < scoreEvery {
		return
	}
	d.scored = now
	for _, s := range d.order {
		s.score = ask(s.worker, s.incarnation)
	}
}

const scoreEvery = time.Second

// seatOfLease returns the seat that a lease of the gateway's own is for, under mu; nil if that incarnation is not here.
func (d *desk) seatOfLease(ref api.LeaseRef) *seat {
	if s := d.seatAt(ref.Worker(), ref.Incarnation); s != nil {
		return s
	}
	if p, found := d.gateway.config.Processes.Get(ref.Worker(), ref.Incarnation); found && !ended(p) {
		return d.take(p)
	}
	return nil
}
