package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// upstream is one incarnation of a worker on this host: the lease that counts on it and the calls in flight. The fields
// after the first block are guarded by the lock of its pool.
type upstream struct {
	pool        *poolState
	worker      string
	incarnation int64
	process     *process.Process
	spec        *spec.Spec    // shared
	conn        *wire.Conn    // nil for protocol none
	plain       PlainUpstream // of protocol none
	verifying   chan struct{} // one token: its owner may ask the workflow whether a lease counts
	stats       *workerStats

	newest   api.LeaseRef // the newest lease seen, granted or not; an older one is fenced
	lease    *activeLease // the lease that counts, if it is known
	draining bool
	// releasing says that the sessions bound to the worker are held until this incarnation has released them, or have
	// been.
	releasing bool
	gone      bool // the process has ended, or takes no further call
	inFlight  int
	calls     callCount // of the whole incarnation
	errors    callErrors
	// suspension keeps it out of service; nil if nothing does. suspended is what is known of the newest one, even after
	// its end. suspendTurn is the newest order of that kind, or of its end.
	suspension  *suspension
	suspended   *api.Suspension
	suspendTurn int64
	idle        []chan struct{} // closed when no call is in flight
	turn        int64           // about the number of calls it was chosen for; equals take turns by it
	score       float64

	// Checkouts through the Dispatcher.
	checkingOut bool
	forClient   bool // the checkout in progress is for a client
	free        bool // its lease was returned through this gateway, so that the next checkout should succeed
	refusals    int  // in a row
	retryAt     time.Time
	requestID   string // of a checkout of the Dispatcher's own without an answer; the next one repeats it
}

// activeLease is a lease that the workflow has confirmed.
type activeLease struct {
	ref       api.LeaseRef
	lease     api.Lease
	key       leaseKey
	ttl       time.Duration
	expires   time.Time       // by this host's monotonic clock
	own       bool            // the Dispatcher's
	ended     bool            // returned or superseded: no new call
	reason    string          // of ended
	previous  <-chan struct{} // closed when the calls under earlier leases have ended; nil if there were none
	calls     map[*Call]struct{}
	idle      chan struct{} // closed when calls is empty; set once the lease is superseded
	count     callCount
	fatal     string // why the worker asked to be replaced
	unhealthy string // why the worker is to be degraded when the lease ends
	idleSince time.Time
	requestID string // of the client's checkout, if it passed this gateway

	// Of the Dispatcher's own lease.
	returnAt    time.Time // when it may go back between two calls
	refuseAfter time.Time // when the last call may start
	recalled    bool      // another holder has asked for the worker
	renewAt     time.Time // after an outage: whether it still counts is to be asked
	requesting  bool      // a renewal or a checkin is in progress
	retryAt     time.Time // of a failed renewal or checkin
}

func newUpstream(p *poolState, proc *process.Process, turn int64) *upstream {
	u := &upstream{
		pool: p, worker: proc.Worker(), incarnation: proc.Incarnation(), process: proc, spec: proc.SharedSpec(),
		conn: proc.Conn(), verifying: make(chan struct{}, 1),
		score: 100, turn: turn, stats: p.workerStatsLocked(proc.Worker(), time.Now()),
	}
	u.verifying <- struct{}{}
	if plain := p.dispatcher.config.Plain; u.conn == nil && plain != nil {
		u.plain = plain(proc)
	}
	return u
}

// adoptLocked makes a confirmed lease the one that counts. It cancels the calls under the previous lease; calls under
// the new one wait until those have ended. It reports false when a newer lease has been seen, which fences this one.
func (u *upstream) adoptLocked(lease api.Lease, ref api.LeaseRef, own bool, expires, now time.Time) bool {
	if ref.Older(u.newest) || u.gone || u.pool.closed != nil {
		return false
	}
	old := u.lease
	if old != nil && old.ref == ref {
		if old.ended {
			return false
		}
		if expires.After(old.expires) {
			lease.Token = ""
			old.lease, old.ttl, old.expires = lease, lease.TTL(), expires
		}
		return true
	}
	u.supersedeLocked(ref, "a newer lease was granted")
	u.pool.retireOlderLocked(u)
	lease.Token = "" // the holder's
	u.lease = &activeLease{
		ref: ref, lease: lease, key: keyOf(lease), ttl: lease.TTL(), expires: expires, own: own,
		calls: make(map[*Call]struct{}), idleSince: now,
	}
	u.stats.granted.Add(1)
	u.free = false
	if u.busyLocked() {
		u.lease.previous = u.freeLocked(old)
	}
	return true
}

// busyLocked reports whether calls are in flight, or cancelled and not yet given up by the worker.
func (u *upstream) busyLocked() bool {
	return u.inFlight > 0 || u.conn != nil && u.conn.InFlight() > 0
}

// workerPoll is the interval at which freeLocked polls a worker for cancelled calls.
const workerPoll = time.Millisecond

// freeLocked returns a channel that is closed when no call is in flight under old or an earlier lease and the worker
// has answered the cancelled ones. No call may reach the worker before.
func (u *upstream) freeLocked(old *activeLease) <-chan struct{} {
	free := make(chan struct{})
	var waits []<-chan struct{}
	if old != nil {
		if old.previous != nil {
			waits = append(waits, old.previous)
		}
		if len(old.calls) > 0 {
			old.idle = make(chan struct{})
			waits = append(waits, old.idle)
		}
	}
	life := u.pool.dispatcher.life.Done()
	u.pool.dispatcher.work.Go(func() {
		defer close(free)
		defer u.pool.notify()
		for _, idle := range waits {
			select {
			case <-idle:
			case <-life:
				return
			}
		}
		ticker := time.NewTicker(workerPoll)
		defer ticker.Stop()
		for u.conn != nil && u.conn.InFlight() > 0 {
			select {
			case <-ticker.C:
			case <-u.conn.Done(): // a worker that answers no cancel breaks its connection
				return
			case <-life:
				return
			}
		}
	})
	return free
}

// supersedeLocked fences every lease older than ref.
func (u *upstream) supersedeLocked(ref api.LeaseRef, reason string) {
	if !u.newest.Older(ref) {
		return
	}
	u.newest = ref
	if old := u.lease; old != nil && old.ref.Older(ref) {
		u.endLeaseLocked(reason)
		fenced := api.Errorf(api.CodeLeaseFenced, "lease %s on %s was superseded while the call ran", old.lease.ID, u.worker)
		for c := range old.calls {
			c.cancel(fenced)
		}
		u.lease = nil
	}
}

// fenceLocked fences a lease and those before it. It returns the lease if it is the one that counts, else nil, and a
// channel as freeLocked does.
func (u *upstream) fenceLocked(ref api.LeaseRef, reason string) (*activeLease, <-chan struct{}) {
	l := u.lease
	if l != nil && l.ref != ref {
		l = nil
	}
	ref.Seq++
	u.supersedeLocked(ref, reason)
	return l, u.freeLocked(l)
}

// endLeaseLocked lets no further call start under the lease that counts.
func (u *upstream) endLeaseLocked(reason string) {
	if u.lease != nil && !u.lease.ended {
		u.lease.ended, u.lease.reason = true, reason
	}
}

// releaseLocked forgets the Dispatcher's own ended lease, so that only the receiver of the checkin request returns it.
func (u *upstream) releaseLocked() *api.CheckinRequest {
	checkin := u.lease.checkin(api.OutcomeOK, "")
	u.lease = nil
	u.newest.Seq++ // the released lease is older than any that may follow
	return &checkin
}

// idleLocked returns a channel that is closed when no call is in flight.
func (u *upstream) idleLocked() <-chan struct{} {
	idle := make(chan struct{})
	if u.inFlight == 0 {
		close(idle)
	} else {
		u.idle = append(u.idle, idle)
	}
	return idle
}

// awaitIdle waits until no call is in flight. It fails if ctx ends first.
func (u *upstream) awaitIdle(ctx context.Context) error {
	u.pool.mu.Lock()
	idle := u.idleLocked()
	u.pool.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startLocked puts a call in flight under the lease that counts.
func (u *upstream) startLocked(c *Call, now time.Time) {
	c.upstream, c.lease, c.startedAt = u, u.lease, now
	c.lease.calls[c] = struct{}{}
	u.inFlight++
}

// completeLocked removes a call from those in flight and counts it; err is its result.
func (u *upstream) completeLocked(c *Call, err error, now time.Time) {
	l := c.lease
	c.completed = true
	delete(l.calls, c)
	if l.idle != nil && len(l.calls) == 0 {
		close(l.idle)
		l.idle = nil
	}
	l.idleSince = now
	if err == nil || started(err) {
		took := now.Sub(c.startedAt)
		l.count.add(err != nil, took)
		u.calls.add(err != nil, took)
		u.stats.add(err != nil, took)
		u.pool.stats.calls.observe(took)
		if c.traceID != "" {
			u.pool.stats.calls.illustrate(Exemplar{c.traceID, took, now})
		}
	}
	if reason := fatalReason(err); reason != "" {
		l.fatal = reason
	}
	u.countErrorLocked(c, err, now)
	if u.inFlight--; u.inFlight == 0 {
		for _, idle := range u.idle {
			close(idle)
		}
		u.idle = nil
	}
}

// refusedLocked reports whether the call has failed with err because its process stops on its own, and takes no further
// call. A process that has asked to be replaced continues until its lease is returned, which says so.
func (c *Call) refusedLocked(err error) bool {
	u := c.upstream
	return err != nil && u.conn != nil && c.lease.fatal == "" &&
		(errors.Is(err, wire.ErrNotBegun) || !wire.Writable(u.conn))
}

// returnDue reports whether the lease was held long enough.
func (l *activeLease) returnDue(now time.Time) bool { return now.After(l.returnAt) }

// checkin is the request that returns the lease with its usage. If the worker is unhealthy or asks to be replaced, that
// overrides a better outcome.
func (l *activeLease) checkin(outcome api.Outcome, reason string) api.CheckinRequest {
	switch {
	case l.fatal != "" && outcome != api.OutcomeClose:
		outcome, reason = api.OutcomeClose, l.fatal
	case l.unhealthy != "" && outcome == api.OutcomeOK:
		outcome, reason = api.OutcomeError, l.unhealthy
	}
	return api.CheckinRequest{LeaseID: l.lease.ID, Outcome: outcome, Error: reason, Usage: l.count.usage()}
}
