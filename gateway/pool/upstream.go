package pool

import (
	"errors"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// upstream is one ready incarnation of a worker on this host. Calls of its pool may run on it while it is open; a
// client's lease closes it to them. The fields after the first block are guarded by the lock of its pool.
type upstream struct {
	pool        *poolState
	worker      string
	incarnation int64
	process     *process.Process
	spec        *spec.Spec      // shared
	plain       PlainUpstream   // of protocol none
	verifying   chan struct{}   // one token: its owner may ask the workflow whether a lease counts
	served      *process.Served // of the process
	stats       *workerStats

	conn *wire.Conn // nil for protocol none; isolated workers get another with each process
	use  use
	// intended is the key, "" for none, of the client that asks for a lease through this gateway, or has got one so.
	intended string

	closed [closings]string // why it takes no call of the pool, for each reason; "" for a reason that does not hold
	// suspension is the order that keeps it out of service, nil if none does. suspended is what is known of the newest
	// one, even after its end. suspendGeneration is the newest order of that kind, or of its end.
	suspension        *suspension
	suspended         *api.Suspension
	suspendGeneration int64

	leases lease.State
	lease  *activeLease       // leases.Held; nil for none
	calls  map[*Call]struct{} // in flight, of the pool and under leases
	// releasing says that the sessions bound to the worker are held until this incarnation has released them, or have
	// been.
	releasing bool
	notifyAt  int64 // the number of its calls at which notify is called, once; 0 for never
	notify    func()
	errors    callErrors
	chosen    int64 // about the number of calls it was chosen for; equals alternate by it
	score     float64

	answered answered
	question question
	// refusals counts checkouts in a row that the worker refused to clients; no client asks it before retryAt.
	refusals int
	retryAt  time.Time
	// returning says that a checkin is on its way to the workflow, which would refuse the next client until it has it.
	returning bool
}

// activeLease is a client's lease that the workflow has confirmed.
type activeLease struct {
	ref       api.LeaseRef
	lease     api.Lease
	key       lease.Key
	alone     bool           // no call from before is on the process any more
	served    process.Served // under it
	requestID string         // of the client's checkout, if it passed this gateway
}

// answered is the lease that the newest answer to a verification has confirmed. It is returned once somebody who has
// the right to it has checked it in after that.
type answered struct {
	ref      api.LeaseRef
	key      lease.Key
	returned bool
}

func newUpstream(p *poolState, proc *process.Process) *upstream {
	u := &upstream{
		pool: p, worker: proc.Worker(), incarnation: proc.Incarnation(), process: proc, spec: proc.SharedSpec(),
		served: proc.Served(), conn: proc.Conn(), verifying: make(chan struct{}, 1),
		score: 100, chosen: p.chosen, calls: map[*Call]struct{}{}, leases: lease.New(proc.Incarnation()),
		stats: p.workerStatsLocked(proc.Worker(), time.Now()),
	}
	u.verifying <- struct{}{}
	if u.spec.Pool.Protocol == spec.ProtocolNone {
		u.plain = p.dispatcher.config.Plain(proc)
	}
	return u
}

// closing is why an incarnation takes no call of the pool, the strongest first. Beside these, lease.State and its use
// close it.
type closing int

const (
	gone      closing = iota // the process has ended, or takes no further call
	draining                 // permanently
	suspended                // see upstream.suspension
	resetting                // until its program has dropped what the holder of an expired lease left
	fatal                    // the program asked to be replaced
	degraded                 // until it passes a probe
	closings                 // their number
)

// is reports whether this reason keeps the incarnation closed. The pool's lock must be held.
func (u *upstream) is(c closing) bool { return u.closed[c] != "" }

// opensLocked reports whether calls of the pool with the key, "" for none, may go to the incarnation at all.
func (u *upstream) opensLocked(key string) bool {
	return u.inServiceLocked() && u.admitsLocked(key) &&
		(u.pool.older == 0 || !u.awaitsReleaseLocked())
}

// awaitsReleaseLocked reports whether an older incarnation of the worker serves that keeps parts of its sessions to
// itself, which it releases when it is drained.
func (u *upstream) awaitsReleaseLocked() bool {
	for _, o := range u.pool.order {
		if o.worker == u.worker && o.incarnation < u.incarnation && !o.is(gone) && !o.is(draining) &&
			o.offersHookLocked(api.HookSessionRelease) {
			return true
		}
	}
	return false
}

// openedLocked starts what waits for the worker, which may have opened.
func (u *upstream) openedLocked() {
	u.pool.dispatchQueueLocked(time.Now())
	u.pool.changes.Announce()
}

// adoptLocked makes a confirmed lease the one that counts. It cancels the calls under the previous lease; calls under
// the new one wait until those have ended, and the pool's. It reports false when a newer lease has been seen, which
// fences this one.
func (u *upstream) adoptLocked(granted api.Lease, ref api.LeaseRef, expires time.Time) bool {
	if u.is(gone) || u.pool.dispatcher.closing.Load() {
		return false
	}
	next, adopted := u.leases.Adopt(ref, expires)
	if !adopted {
		u.leases = next // one that a checkin is ending may last longer
		return false
	}
	u.setLeasesLocked(next, "a newer lease was granted")
	granted.Token = "" // the holder's
	if u.lease == nil {
		u.lease = &activeLease{ref: ref, key: lease.KeyOf(granted)}
		u.stats.granted++
		u.pool.retireOlderLocked(u)
	}
	u.lease.lease = granted
	return true
}

// setLeasesLocked takes a new state of the leases. It cancels the calls under a lease that counts no more.
func (u *upstream) setLeasesLocked(next lease.State, reason string) {
	if next.Doubt != u.leases.Doubt {
		u.question = question{asking: u.question.asking}
		u.pool.notify()
	}
	opens := next.Open() && !u.leases.Open()
	u.leases = next
	if l := u.lease; l != nil && l.ref != next.Held {
		u.cancelLocked(l, api.Errorf(api.CodeLeaseFenced, "lease %s on %s ended while the call ran: %s", l.lease.ID, u.worker,
			reason))
		u.lease, u.intended = nil, ""
		u.refusals, u.retryAt = 0, time.Time{}
		u.endUseLocked()
	}
	if opens {
		u.reportFatalLocked()
		u.openedLocked()
	}
}

// fenceLocked fences a lease and those before it. It returns the lease if it is the one that counts, else nil.
func (u *upstream) fenceLocked(ref api.LeaseRef, reason string) *activeLease {
	l := u.lease
	if l != nil && l.ref != ref {
		l = nil
	}
	ref.Seq++
	u.setLeasesLocked(u.leases.Fence(ref), reason)
	return l
}

// busyLocked reports whether calls are in flight, or cancelled and not yet given up by the worker. After the end of its
// process nobody answers them.
func (u *upstream) busyLocked() bool { return !u.is(gone) && u.currentLoadLocked() > 0 }

// aloneLocked reports whether calls under the lease may reach the process.
func (u *upstream) aloneLocked(l *activeLease) bool {
	if !l.alone { // none of its own has been sent
		others := u.inFlight() - u.underLocked(l)
		if u.conn != nil {
			others = max(others, u.conn.InFlight())
		}
		l.alone = lease.Alone(others)
	}
	return l.alone
}

// inFlight counts the calls in flight, of the pool and under leases.
func (u *upstream) inFlight() int { return int(u.served.InFlight.Load()) }

// underLocked counts the calls in flight under the lease, or for nil those of the pool.
func (u *upstream) underLocked(l *activeLease) (n int) {
	for c := range u.calls {
		if c.lease == l {
			n++
		}
	}
	return n
}

// cancelLocked cancels the calls that underLocked counts.
func (u *upstream) cancelLocked(l *activeLease, reason error) {
	for c := range u.calls {
		if c.lease == l {
			c.cancel(reason)
		}
	}
}

// startLocked puts a call in flight, under a lease or, without one, as a call of the pool.
func (u *upstream) startLocked(c *Call, l *activeLease, now time.Time) {
	c.upstream, c.lease, c.startedAt = u, l, now
	u.served.InFlight.Add(1)
	if u.spec.Limits.CallsPerMinute > 0 {
		u.stats.rate.add(now)
	}
	u.calls[c] = struct{}{}
	if l != nil {
		u.yieldLocked(c)
	}
	if c.alone = l == nil || u.aloneLocked(l); c.alone {
		c.alone = u.beginUseLocked(c)
	}
}

// completeLocked removes a call from those in flight and counts it; err is its result.
func (u *upstream) completeLocked(c *Call, err error, now time.Time) {
	delete(u.calls, c)
	u.completeUseLocked(c)
	if err == nil || Started(err) {
		took := now.Sub(c.startedAt)
		if c.lease != nil {
			c.lease.served.Add(err != nil, took)
		}
		u.served.Add(err != nil, took)
		u.notifyCountLocked()
		u.stats.served.Add(err != nil, took)
		u.pool.stats.countCall(took, c.traceID)
		u.pool.stats.figures.count(c.label(), api.CodeOf(err), c.arrived.waited(c.startedAt)+c.waitedElsewhere, took, now)
	}
	if reason := fatalReason(err); reason != "" && !u.byUse() {
		u.closed[fatal] = reason
	}
	u.countErrorLocked(c, err, now)
	if u.served.InFlight.Add(-1) == 0 {
		u.reportFatalLocked()
		u.pool.leaving = slices.DeleteFunc(u.pool.leaving, func(l *upstream) bool { return l == u })
	}
}

// reportFatalLocked has a worker replaced whose program asked for it, when its calls have ended. A client's lease says
// so with its checkin.
func (u *upstream) reportFatalLocked() {
	if u.is(fatal) && u.lease == nil && u.inFlight() == 0 && !u.errors.replaced {
		u.errors.replaced = true
		u.reportLocked(u.closed[fatal], true)
	}
}

// refusedLocked reports whether the call has failed with err because its process stops on its own, and takes no further
// call. A process that has asked to be replaced continues until its worker has it replaced, and after one whose use is
// over comes a clean one.
func (c *Call) refusedLocked(err error) bool {
	u := c.upstream
	return err != nil && u.conn != nil && !u.is(fatal) && !u.use.ending &&
		(errors.Is(err, wire.ErrNotBegun) || !wire.Writable(u.conn))
}

// checkinLocked is the request that returns the lease with its usage. If the worker asks to be replaced, that overrides
// a better outcome.
func (u *upstream) checkinLocked(l *activeLease, outcome api.Outcome, reason string) api.CheckinRequest {
	if u.is(fatal) && outcome != api.OutcomeClose {
		outcome, reason = api.OutcomeClose, u.closed[fatal]
	}
	return api.CheckinRequest{LeaseID: l.lease.ID, Outcome: outcome, Error: reason, Usage: l.served.Usage()}
}
