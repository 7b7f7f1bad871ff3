package dispatch

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
)

// suspendPoll is the interval at which Suspend looks whether the calls in flight have ended.
const suspendPoll = 5 * time.Millisecond

// suspension is the order to keep an incarnation out of service.
type suspension struct {
	turn   int64
	reason string
	over   chan struct{} // closed by the next order
}

// suspendLocked makes an order the one that counts. It returns nil if a newer one has been seen.
func (u *upstream) suspendLocked(turn int64, reason string) *suspension {
	if turn < u.suspendTurn {
		return nil
	}
	u.endSuspensionLocked(turn)
	u.suspension = &suspension{turn: turn, reason: reason, over: make(chan struct{})}
	return u.suspension
}

func (u *upstream) endSuspensionLocked(turn int64) {
	u.suspendTurn = turn
	if u.suspension != nil {
		close(u.suspension.over)
		u.suspension = nil
	}
}

// errSuspended refuses a call to the incarnation.
func (u *upstream) errSuspended() *api.Error {
	return api.Errorf(api.CodeSuspended, "%s is suspended and takes no call: %s", u.worker, u.suspension.reason).After(time.Second)
}

// Suspend starts no further call on an incarnation, until EndSuspension. It returns when none is in flight and no client's lease counts; when
// r.Timeout is over it fences the lease and cuts the calls that remain. An order that a later one replaces is withdrawn, and changes nothing more.
// The lease that it ended is in Checkin. An incarnation that is not on this host is idle.
func (d *Dispatcher) Suspend(ctx context.Context, r api.SuspendRequest) api.SuspendResult {
	u := d.upstreamOf(r.Worker, r.Incarnation)
	if u == nil {
		return api.SuspendResult{}
	}
	u.pool.mu.Lock()
	s := u.suspendLocked(r.Turn, r.Reason)
	u.pool.mu.Unlock()
	if s == nil {
		return api.SuspendResult{Withdrawn: true}
	}
	limit := time.NewTimer(max(0, r.Timeout.D()))
	defer limit.Stop()
	ticker := time.NewTicker(suspendPoll)
	defer ticker.Stop()
	for {
		u.pool.mu.Lock()
		quiet := u.gone || u.draining || !r.Client && !u.busyLocked() // a drain waits by itself
		u.pool.mu.Unlock()
		if quiet {
			return d.endForSuspension(ctx, u, s, r.LeaseID)
		}
		select {
		case <-s.over:
			return api.SuspendResult{Withdrawn: true}
		case <-ctx.Done():
			return d.endForSuspension(ctx, u, s, r.LeaseID)
		case <-limit.C:
			return d.endForSuspension(ctx, u, s, r.LeaseID)
		case <-ticker.C:
		}
	}
}

// endForSuspension fences the lease, cancels the calls under it, and waits until the worker has given them up.
func (d *Dispatcher) endForSuspension(ctx context.Context, u *upstream, s *suspension, id string) (result api.SuspendResult) {
	u.pool.mu.Lock()
	if u.suspension != s {
		u.pool.mu.Unlock()
		return api.SuspendResult{Withdrawn: true}
	}
	ref, err := api.ParseLeaseID(id)
	if id == "" && u.lease != nil { // its calls outlive it: its holder has returned it without this gateway
		ref, err = u.lease.ref, nil
	}
	if err != nil || u.gone || u.draining { // without a lease there are no calls; an end of the incarnation ends the lease by itself
		u.pool.mu.Unlock()
		return result
	}
	l := u.lease
	if l != nil && l.ref != ref {
		l = nil
	}
	result.CallsCut = u.inFlight
	next := ref
	next.Seq++
	u.supersedeLocked(next, "the worker is suspended")
	u.requestID = "" // of a checkout whose answer has not arrived: it has no effect when it does
	free := u.freeLocked(l)
	u.pool.mu.Unlock()
	select {
	case <-free:
	case <-ctx.Done():
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	if l != nil {
		checkin := l.checkin(api.OutcomeOK, "")
		result.Checkin = &checkin
	}
	return result
}

// EndSuspension lets calls start on an incarnation again.
func (d *Dispatcher) EndSuspension(r api.ResumeRequest) {
	u := d.upstreamOf(r.Worker, r.Incarnation)
	if u == nil {
		return
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	if r.Turn < u.suspendTurn {
		return
	}
	u.endSuspensionLocked(r.Turn)
	u.retryAt = time.Time{}
	u.pool.notify()
}
