package pool

import (
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/spec"
)

// candidate is what the balancer compares of a worker with a free slot.
type candidate struct {
	bound    bool // to the key of the call
	inFlight int
	score    float64 // 0 to 100
	chosen   int64   // see chosenLocked
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

// better reports whether a is the better choice than b: bound to the key, else fewer calls in flight, else the higher
// score band, else chosen for fewer calls.
func better(a, b candidate) bool {
	switch {
	case a.bound != b.bound:
		return a.bound
	case a.inFlight != b.inFlight:
		return a.inFlight < b.inFlight
	case a.band() != b.band():
		return a.band() > b.band()
	}
	return a.chosen < b.chosen
}

// prefersSession reports whether a call goes to its session's worker rather than to the best, while busy of all workers
// are busy.
func prefersSession(session, best candidate, busy, all int) bool {
	return 2*busy < all || session.chosen <= best.chosen+maxSessionLead
}

// chosenLocked is the number of calls that count as given to a worker. One that was out of service does not get all the
// calls that it missed, and a new process none of those before it: where workers are replaced after some number of
// requests, the new ones would starve the rest.
func (p *poolState) chosenLocked(u *upstream) int64 { return max(u.chosen, p.chosen-maxCatchUp) }

// countChoiceLocked counts a call for which the worker was chosen.
func (p *poolState) countChoiceLocked(u *upstream) {
	u.chosen = p.chosenLocked(u) + 1
	p.chosen = max(p.chosen, u.chosen)
}

// chooseLocked chooses among the workers that are open to the key and have a free slot, or among the incarnations of
// one worker; a client does not get one that has just refused a checkout. It returns nil if there is none.
func (p *poolState) chooseLocked(worker, preferred, key string, forClient bool, now time.Time) *upstream {
	var best, session *upstream
	var ofBest, ofSession candidate
	busy, mayBind := 0, key == "" || p.mayBindLocked(key)
	for _, u := range p.order {
		load, open := u.loadLocked(key, now)
		if load > 0 {
			busy++
		}
		if !open || worker != "" && u.worker != worker || !mayBind && !u.use.begun ||
			forClient && (u.returning || now.Before(u.retryAt)) {
			continue
		}
		c := candidate{u.use.begun, load, u.score, p.chosenLocked(u)}
		if best == nil || better(c, ofBest) {
			best, ofBest = u, c
		}
		if preferred != "" && u.worker == preferred {
			session, ofSession = u, c
		}
	}
	if session != nil && ofSession.bound == ofBest.bound && prefersSession(ofSession, ofBest, busy, len(p.order)) {
		best = session
	}
	return best
}

// loadLocked counts the calls on a worker that is open to the key; free reports whether it takes another one now.
func (u *upstream) loadLocked(key string, now time.Time) (load int, free bool) {
	if !u.opensLocked(key) {
		return 0, false
	}
	load = u.currentLoadLocked()
	return load, load < u.capacity() && u.rateWaitLocked(now) == 0
}

// currentLoadLocked counts the calls on the worker. A cancelled call keeps its slot until the worker has given it up.
func (u *upstream) currentLoadLocked() int {
	if u.conn != nil {
		return max(u.inFlight(), u.conn.InFlight())
	}
	return u.inFlight()
}

// capacity is the number of calls that the worker may have in flight.
func (u *upstream) capacity() int {
	if u.spec.MCP.Mode == spec.MCPSession && u.process.Era() == spec.EraModern {
		return 1 // nobody shares a process
	}
	return max(1, u.spec.Pool.MaxInflight)
}

// admission says whether a call may start now.
type admission int

const (
	admitted   admission = iota
	rejected             // the error says why
	mustQueue            // no worker of the pool has a free slot
	unverified           // the workflow must confirm the lease
)

// admitLocked chooses a worker of the target that a call may start on now. An error comes with rejected only.
func (p *poolState) admitLocked(t *Target, now time.Time) (*upstream, admission, error) {
	by := p.spec.IsolatedBy()
	if t.kind == underLease {
		by = t.upstream.spec.IsolatedBy()
	}
	if err := checkKey(p.pool, by, t.key); err != nil && t.kind != aheadOfAll {
		return nil, rejected, err
	}
	if t.kind == underLease {
		admission, err := t.upstream.admitLeaseLocked(t.ref, t.authority, now)
		return t.upstream, admission, err
	}
	if t.kind == inQueue && p.held[t.session] != nil { // see release.go
		return nil, mustQueue, nil
	}
	if t.worker != "" {
		if t.kind == aheadOfAll {
			if err := p.goneLocked(t.worker); err != nil {
				return nil, rejected, err
			}
		}
		if err := p.suspendedLocked(t.worker); err != nil {
			return nil, rejected, err
		}
	}
	if p.queue.Empty(t.worker, t.key) {
		if u := p.chooseLocked(t.worker, t.preferred, t.key, false, now); u != nil {
			p.countChoiceLocked(u)
			return u, admitted, nil
		}
	}
	return nil, mustQueue, nil
}

// admitLeaseLocked decides about a call under the lease ref without changing anything.
func (u *upstream) admitLeaseLocked(ref api.LeaseRef, a lease.Authority, now time.Time) (admission, error) {
	verdict := u.leases.Admit(ref, now, u.pool.dispatcher.monitor.lost.Load())
	switch {
	case verdict == lease.Fenced:
		return rejected, api.Errorf(api.CodeLeaseFenced,
			"lease %s is older than the newest of %s, whose incarnation is %d; check out again", leaseID(ref), u.worker,
			u.incarnation)
	case verdict == lease.HasEnded:
		return rejected, api.Errorf(api.CodeLeaseFenced, "lease %s on %s has ended (%s); check out again", leaseID(ref),
			u.worker, u.leases.Ended)
	case u.is(gone):
		return rejected, api.Errorf(api.CodeLeaseFenced, "the process of lease %s has ended; check out again", leaseID(ref))
	case u.is(draining):
		return rejected, api.Errorf(api.CodeDraining,
			"%s is draining and takes no new call; check lease %s in and check out again", u.worker, leaseID(ref))
	case u.is(suspended):
		return rejected, u.errSuspended()
	case u.leases.Held == ref && !a.Opens(u.lease.key):
		return rejected, lease.ErrForbidden(leaseID(ref))
	case verdict == lease.Waiting:
		return rejected, api.Errorf(api.CodeUnavailable,
			"%s was taken over from an earlier agent, and its worker has not claimed it yet", u.worker).After(time.Second)
	case verdict == lease.HasExpired:
		return rejected, errExpired(leaseID(ref))
	case verdict != lease.Admitted:
		return unverified, nil
	}
	if wait := u.rateWaitLocked(now); wait > 0 {
		return rejected, errRateLimited(u.worker, u.spec.Limits.CallsPerMinute, wait)
	}
	return admitted, nil
}

// suspendedLocked is why no call of the pool waits for the worker, nil if one may.
func (p *poolState) suspendedLocked(worker string) error {
	if newest := p.newestLiveLocked(worker); newest != nil && newest.is(suspended) {
		return newest.errSuspended()
	}
	return nil
}

// goneLocked is why no call will start on the worker, nil if one may.
func (p *poolState) goneLocked(worker string) error {
	newest := p.newestLiveLocked(worker)
	switch {
	case newest == nil:
		return errNoProcess(worker, p.dispatcher.config.HostID)
	case newest.is(draining):
		return api.Errorf(api.CodeDraining, "%s is draining and takes no new call", worker).After(time.Second)
	}
	return nil
}

func leaseID(r api.LeaseRef) string { return api.LeaseID(r.Pool, r.Slot, r.Incarnation, r.Seq) }

func errExpired(id string) *api.Error {
	return api.Errorf(api.CodeLeaseFenced,
		"lease %s has expired, and Temporal does not respond, so it is unknown whether it was renewed; check out again", id)
}

func errNoProcess(worker, hostID string) *api.Error {
	return api.Errorf(api.CodeWorkerNotFound, "no process of %s runs on host %s", worker, hostID)
}
