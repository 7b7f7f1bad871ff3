package pool

import (
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// While Temporal cannot be reached, a worker of this host may be given up there and start on another host. A client's
// lease ends here when its time is over. Calls of a pool, which own nothing, continue until FenceAfter; with
// on_partition = "fence" every call stops at once.

// fencesLocked reports whether no call of the pool may run, because Temporal has not answered for too long.
func (p *poolState) fencesLocked(now time.Time) bool {
	m := p.dispatcher.monitor
	return m.lost.Load() && (m.fenced(now) || p.specKnown && p.spec.Pool.OnPartition == spec.PartitionFence)
}

// lostControl acts on the loss of Temporal.
func (p *poolState) lostControl(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.notify()
	if !p.fencesLocked(now) {
		return
	}
	p.cancelCallsLocked(api.Errorf(api.CodeUnavailable,
		"Temporal does not respond, and the pool is configured to stop its calls then (pool.on_partition = %q)",
		spec.PartitionFence))
}

// expireLocked ends a client's lease whose time is over while Temporal cannot be asked whether it was renewed, and
// cancels its calls. It returns the time until then, also without a call: one may start before.
func (u *upstream) expireLocked(now time.Time, lost bool) time.Duration {
	l := u.lease
	if !lost || l == nil || l.ended {
		return idleTick
	}
	if left := l.expires.Sub(now); left > 0 {
		return left
	}
	l.calls.cancel(errExpired(l.lease.ID))
	return idleTick
}

// retireForLocked takes an incarnation out of service when a lease names a later one that is not here: its worker
// continues elsewhere. Without that its gateway would check the worker out again and again.
func (u *upstream) retireForLocked(lease api.Lease) {
	if lease.Worker == u.worker && lease.Incarnation > u.incarnation && lease.Host != u.pool.dispatcher.config.HostID {
		u.retireLocked()
		u.endLeaseLocked("the worker has moved to host " + lease.Host)
	}
}
