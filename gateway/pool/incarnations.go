package pool

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
)

// A worker may have two processes at a time: while one replaces another (rotation.surge), and while the older one
// finishes its calls. Both serve until the older one is drained, or a lease on the newer one is seen.

// placeLocked is the place in order of an incarnation, whether or not it is there.
func (p *poolState) placeLocked(worker string, incarnation int64) (at int, found bool) {
	return slices.BinarySearchFunc(p.order, incarnation, func(u *upstream, incarnation int64) int {
		return cmp.Or(cmp.Compare(u.worker, worker), cmp.Compare(u.incarnation, incarnation))
	})
}

// findLocked returns the upstream of exactly this incarnation, nil if there is none.
func (p *poolState) findLocked(worker string, incarnation int64) *upstream {
	if at, found := p.placeLocked(worker, incarnation); found {
		return p.order[at]
	}
	return nil
}

// newestLocked returns the worker's newest incarnation, nil if there is none.
func (p *poolState) newestLocked(worker string) *upstream {
	if at, _ := p.placeLocked(worker, math.MaxInt64); at > 0 && p.order[at-1].worker == worker {
		return p.order[at-1]
	}
	return nil
}

// newestLiveLocked returns the worker's newest incarnation that lives, nil if there is none.
func (p *poolState) newestLiveLocked(worker string) *upstream {
	at, _ := p.placeLocked(worker, math.MaxInt64)
	for ; at > 0 && p.order[at-1].worker == worker; at-- {
		if u := p.order[at-1]; !u.is(gone) {
			return u
		}
	}
	return nil
}

// retireOlderLocked takes the worker's older incarnations out of service when a lease of u counts. Their calls in
// flight finish, and the leases on them end.
func (p *poolState) retireOlderLocked(u *upstream) {
	for _, o := range p.order {
		if o.worker != u.worker || o.incarnation >= u.incarnation {
			continue
		}
		o.retireLocked()
		o.holdSessionsLocked()
		o.leases = o.leases.End("a newer lease was granted")
	}
}

// scoreInterval is how long a worker's score is cached.
const scoreInterval = time.Second

// refreshScoresLocked reads the workers' scores if they are older than scoreInterval.
func (p *poolState) refreshScoresLocked(now time.Time) {
	score := p.dispatcher.config.Score
	if score == nil || now.Sub(p.scoredAt) < scoreInterval {
		return
	}
	p.scoredAt = now
	for _, u := range p.order {
		u.score = score(u.worker, u.incarnation)
	}
}

// upstreamFor returns the upstream of a lease's incarnation, else that of a newer one, which rejects the lease itself,
// else nil.
func (d *Dispatcher) upstreamFor(ref api.LeaseRef) *upstream {
	p := d.knownPool(ref.Pool)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if u := p.findLocked(ref.Worker(), ref.Incarnation); u != nil {
		return u
	}
	if newest := p.newestLocked(ref.Worker()); newest != nil && newest.incarnation > ref.Incarnation {
		return newest
	}
	return nil
}

// locked calls do with the upstream of exactly this incarnation, under the lock of its pool, if its process lives here.
func (d *Dispatcher) locked(worker string, incarnation int64, do func(*upstream)) {
	if u := d.upstreamOf(worker, incarnation); u != nil {
		u.pool.mu.Lock()
		defer u.pool.mu.Unlock()
		do(u)
	}
}

// upstreamOf returns the upstream of exactly this incarnation if its process lives here, else nil.
func (d *Dispatcher) upstreamOf(worker string, incarnation int64) *upstream {
	p := d.knownPool(api.PoolOf(worker))
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.findLocked(worker, incarnation)
}

// CallHook calls a hook about a session on one worker of this host: an optional method that takes the session's id.
// called is false without an error if the worker does not offer the hook. The call runs as one of the pool
// and waits for the worker until ctx ends, ahead of all queued calls. Error codes are worker_not_found
// if no process of the worker lives here, busy if it was not free in time or is suspended, draining, and those of Call.
func (d *Dispatcher) CallHook(ctx context.Context, worker, hook, session string) (called bool, err error) {
	pool, _, err := api.ParseWorkerName(worker)
	if err != nil {
		return false, err
	}
	p := d.knownPool(pool)
	if p == nil {
		return false, errNoProcess(worker, d.config.HostID)
	}
	p.mu.Lock()
	u := p.newestLiveLocked(worker)
	offered := u != nil && u.offersHookLocked(hook)
	p.mu.Unlock()
	switch {
	case u == nil:
		return false, errNoProcess(worker, d.config.HostID)
	case !offered:
		return false, nil
	}
	body, err := json.Marshal([]string{session})
	if err != nil {
		return false, api.Errorf(api.CodeInvalid, "session %q cannot be sent to a worker: %w", session, err)
	}
	c, err := d.Do(ctx, Target{kind: aheadOfAll, pool: pool, worker: worker},
		Request{Method: hook, Session: session, Body: body}, exchange)
	if api.CodeOf(err) == api.CodeMethodNotFound {
		return false, nil
	}
	switch {
	case c != nil:
	case api.CodeOf(err) == api.CodeDeadlineExceeded:
		err = api.Errorf(api.CodeBusy, "%s was not free in time; it serves calls or is leased by a client",
			worker).After(time.Second)
	case api.CodeOf(err) == api.CodeSuspended: // which it also is after a hook that was cut
		err = api.Errorf(api.CodeBusy, "%s", api.MessageOf(err))
	}
	return c != nil, err
}

// maxHookWait bounds the wait for a worker that a hook is to run on; its caller's deadline comes first.
const maxHookWait = time.Hour
