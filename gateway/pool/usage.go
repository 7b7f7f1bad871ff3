package pool

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
)

// Open lets calls of its pool run on a process that has just become ready.
func (d *Dispatcher) Open(proc *process.Process) { d.enter(proc, func(*upstream) {}) }

// Resume continues with a process that an earlier agent has served: with its suspension and the lease that counted on
// it, nil for none. It stays closed until its workflow has said who has leased it.
func (d *Dispatcher) Resume(proc *process.Process, suspended *api.Suspension, lease *api.Lease) {
	d.enter(proc, func(u *upstream) {
		u.resumeSuspensionLocked(suspended)
		u.resumeLeaseLocked(lease)
		u.resumeUseLocked()
	})
}

// resumeLeaseLocked continues with the leases of a process that was taken over.
func (u *upstream) resumeLeaseLocked(recorded *api.Lease) {
	var ref api.LeaseRef
	var expires time.Time
	if recorded != nil {
		if parsed, err := api.ParseLeaseID(recorded.ID); err == nil && parsed.Incarnation == u.incarnation {
			expires = time.Now().Add(recorded.TTL())
			if u.adoptLocked(*recorded, parsed, expires) {
				ref = parsed
			}
		}
	}
	u.setLeasesLocked(lease.TakeOver(u.incarnation, ref, expires), "")
}

// enter adds the upstream of a process that is ready, and sets it up before any call can start on it.
func (d *Dispatcher) enter(proc *process.Process, setUp func(*upstream)) {
	p := d.lockPool(api.PoolOf(proc.Worker()))
	if p == nil {
		return
	}
	defer p.mu.Unlock()
	if u := p.upstreamOfLocked(proc); u != nil {
		setUp(u)
		u.openedLocked()
	}
}

// NotifyAt calls notify in the background, once, when an incarnation has served so many calls; 0 is never. A later
// NotifyAt replaces an earlier one.
func (d *Dispatcher) NotifyAt(worker string, incarnation, calls int64, notify func()) {
	d.locked(worker, incarnation, func(u *upstream) {
		u.notifyAt, u.notify = calls, notify
		u.notifyCountLocked()
	})
}

func (u *upstream) notifyCountLocked() {
	if u.notifyAt > 0 && u.served.Usage().Requests >= u.notifyAt {
		u.notifyAt = 0
		u.pool.dispatcher.work.Go(u.notify)
	}
}

// Lease is the lease that counts on an incarnation, with the time that it lasts from now, as far as the Dispatcher
// knows; nil if it knows none.
func (d *Dispatcher) Lease(worker string, incarnation int64) (inUse *api.Lease) {
	d.locked(worker, incarnation, func(u *upstream) { inUse = u.leaseInUseLocked(time.Now()) })
	return inUse
}

// leaseInUseLocked is the lease under which calls may start, with the time that it lasts from now; nil for none.
func (u *upstream) leaseInUseLocked(now time.Time) *api.Lease {
	if u.lease == nil || u.leases.Ended != "" || u.is(gone) || !now.Before(u.leases.Expires) {
		return nil
	}
	inUse := u.lease.lease
	inUse.TTLMS = max(1, u.leases.Expires.Sub(now).Milliseconds())
	return &inUse
}

// SetHealth closes an incarnation to calls of its pool for a problem, and opens it again when there is none, for "". A
// client's lease continues.
func (d *Dispatcher) SetHealth(worker string, incarnation int64, problem string) {
	d.locked(worker, incarnation, func(u *upstream) {
		u.closed[degraded] = problem
		if problem == "" {
			u.askSoonLocked()
		}
		u.openedLocked()
	})
}

// reportLocked has the worker's workflow notified of calls that fail; replace asks for another process.
func (u *upstream) reportLocked(reason string, replace bool) {
	if report := u.pool.dispatcher.config.Unhealthy; report != nil {
		u.pool.dispatcher.work.Go(func() { report(u.worker, u.incarnation, reason, replace) })
	}
}

// callErrors counts the failed calls of an incarnation.
type callErrors struct {
	inRow    int       // calls in a row that ended in an error which the program did not raise on purpose
	degraded time.Time // when they were too many; zero once a later call was answered
	replaced bool      // as many failed again: no further call counts
}

// count counts a call that was answered, unhandled or well, and reports whether there are too many; limit is
// health.max_call_errors. Calls that had started before the incarnation was degraded, and end after that, say nothing
// new.
func (e *callErrors) count(unhandled bool, started, now time.Time, limit int) bool {
	switch {
	case e.replaced, limit <= 0, started.Before(e.degraded):
		return false
	case !unhandled:
		*e = callErrors{}
		return false
	}
	if e.inRow++; e.inRow < limit {
		return false
	}
	e.inRow = 0
	if e.replaced = !e.degraded.IsZero(); !e.replaced {
		e.degraded = now
	}
	return true
}

// maxReason bounds what a reason quotes of an error, in bytes.
const maxReason = 500

func shorten(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxReason)], "") }

// countErrorLocked counts a call that ended with err, and acts on too many: no further call of the pool starts on the
// incarnation until it has passed a probe, and its worker is notified.
func (u *upstream) countErrorLocked(c *Call, err error, now time.Time) {
	unhandled := false
	if err != nil { // before the variable, which costs an allocation
		var remote *wire.RemoteError
		if !errors.As(err, &remote) {
			return // cancelled, timed out or crashed
		}
		unhandled = remote.Unhandled
	}
	if !u.errors.count(unhandled, c.startedAt, now, u.spec.Health.MaxCallErrors) {
		return
	}
	reason := fmt.Sprintf("%d calls in a row failed with an error that the program did not raise on purpose "+
		"(health.max_call_errors); the last one: %s", u.spec.Health.MaxCallErrors, shorten(err.Error()))
	u.closed[degraded] = reason
	u.reportLocked(reason, u.errors.replaced)
}
