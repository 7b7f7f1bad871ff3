package dispatch

import (
	"context"
	"math"
	"time"

	"github.com/tempool/tempool/api"
)

// Drain rejects further calls to an incarnation and waits, until ctx ends, for those in flight; the result's Cut counts
// those that remain then. It has the program release the sessions bound to the worker. If the lease is the Dispatcher's
// own, Drain releases it, and the result's Checkin is the request that returns it. A drained incarnation never serves
// again. An incarnation that is not on this host counts as drained.
func (d *Dispatcher) Drain(ctx context.Context, worker string, incarnation int64) api.DrainResult {
	u := d.upstreamOf(worker, incarnation)
	if u == nil {
		return api.DrainResult{Drained: true}
	}
	u.pool.mu.Lock()
	u.retireLocked()
	u.holdSessionsLocked()
	u.pool.mu.Unlock()
	_ = u.awaitIdle(ctx) // Cut counts the calls that remain
	u.releaseSessions(ctx)
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	result := api.DrainResult{Drained: u.inFlight == 0, CallsCut: u.inFlight}
	if u.lease != nil && u.lease.own {
		u.endLeaseLocked("the worker is draining")
		result.Checkin = u.releaseLocked()
	}
	return result
}

// retireLocked takes the incarnation out of service permanently. That withdraws a suspension, and refuses a later one.
func (u *upstream) retireLocked() {
	u.draining = true
	u.endSuspensionLocked(math.MaxInt64)
}

const (
	// recallPause is how long the Dispatcher does not lease a worker that another holder asked for and found idle.
	recallPause = 250 * time.Millisecond
	// recallHold is how long the Dispatcher keeps using a lease that another holder has asked for. Then it returns the
	// lease between two calls and does not lease the worker for recallTurn, within which a waiting client asks again.
	recallHold = time.Second
	recallTurn = time.Second
)

// Recall returns a lease that the Dispatcher holds and does not use. Returned is false for a client's lease, and while
// calls are in flight under it: then it is returned soon, between two calls.
func (d *Dispatcher) Recall(_ context.Context, worker string, incarnation int64, leaseID string) api.RecallResult {
	ref, err := api.ParseLeaseID(leaseID)
	if err != nil || ref.Worker() != worker || ref.Incarnation != incarnation {
		return api.RecallResult{}
	}
	u := d.upstreamOf(worker, incarnation)
	if u == nil {
		return api.RecallResult{}
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	if l := u.lease; l != nil && l.ref == ref {
		switch {
		case !l.own:
			return api.RecallResult{}
		case u.busyLocked():
			l.recall(time.Now())
			u.pool.notify()
			return api.RecallResult{}
		}
		u.endLeaseLocked("another holder asked for the worker")
		u.retryAt = time.Now().Add(recallPause)
		return api.RecallResult{Returned: true, Checkin: u.releaseLocked()}
	}
	// The answer to the checkout has not arrived, or never will. Fenced first, it has no effect when it does.
	ref.Seq++
	u.supersedeLocked(ref, "it was recalled")
	u.requestID = ""
	u.retryAt = time.Now().Add(recallPause)
	return api.RecallResult{Returned: true, Checkin: &api.CheckinRequest{LeaseID: leaseID, Outcome: api.OutcomeOK}}
}

// recall makes the gateway return the lease between two calls, because another holder has asked for its worker.
func (l *activeLease) recall(now time.Time) {
	if at := now.Add(recallHold); at.Before(l.returnAt) {
		l.returnAt, l.recalled = at, true
	}
}
