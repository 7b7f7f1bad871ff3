package pool

import (
	"context"
	"math"

	"github.com/tempool/tempool/api"
)

// Drain rejects further calls to an incarnation and waits, until ctx ends, for those in flight; the result's Cut counts
// those that remain then. It has the program release the sessions bound to the worker. A drained incarnation never
// serves again. An incarnation that is not on this host counts as drained.
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
	return api.DrainResult{Drained: u.inFlight == 0, CallsCut: u.inFlight}
}

// retireLocked takes the incarnation out of service permanently. That withdraws a suspension, and refuses a later one.
func (u *upstream) retireLocked() {
	u.draining = true
	u.endSuspensionLocked(math.MaxInt64)
}
