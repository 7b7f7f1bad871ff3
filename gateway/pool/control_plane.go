package pool

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/spec"
)

// controlPlaneMonitor records since when Temporal has not answered.
type controlPlaneMonitor struct {
	fenceAfter time.Duration
	began      time.Time
	answeredAt atomic.Int64 // nanoseconds after began
	lost       atomic.Bool
}

// answered records that Temporal answered, and reports whether that ends an outage.
func (m *controlPlaneMonitor) answered(now time.Time) bool {
	m.answeredAt.Store(int64(now.Sub(m.began)))
	return m.lost.Swap(false)
}

// failed records that Temporal did not answer, and reports whether that begins an outage.
func (m *controlPlaneMonitor) failed() bool { return !m.lost.Swap(true) }

// outage is how long Temporal has not answered, 0 if it answered the last check.
func (m *controlPlaneMonitor) outage(now time.Time) time.Duration {
	if !m.lost.Load() {
		return 0
	}
	return now.Sub(m.began) - time.Duration(m.answeredAt.Load())
}

// fenced reports whether the outage is so long that no call of a pool may run.
func (m *controlPlaneMonitor) fenced(now time.Time) bool {
	return m.lost.Load() && m.outage(now) >= m.fenceAfter
}

func errFenced(outage time.Duration) *api.Error {
	return api.Errorf(api.CodeUnavailable,
		"Temporal has not answered for %s, so workers may have been given to another host; it serves again when "+
			"Temporal answers",
		outage.Round(time.Second)).After(5 * time.Second)
}

// checkTimeout bounds one health check of Temporal.
const checkTimeout = 3 * time.Second

// monitorControlPlane checks every CheckEvery whether Temporal answers, until ctx ends.
func (d *Dispatcher) monitorControlPlane(ctx context.Context) {
	last := time.Now()
	d.checkControlPlane(ctx)
	for now := range sleep.Ticks(ctx.Done(), d.config.CheckEvery) {
		d.slept(now.Round(0).Sub(last.Round(0)) - now.Sub(last))
		last = now
		d.checkControlPlane(ctx)
	}
}

// slept ends all leases earlier by the time that this host was suspended, in which its monotonic clock stood still, but
// not its wall clock. If that was only set forward, the workflows confirm the leases.
func (d *Dispatcher) slept(gap time.Duration) {
	if gap < time.Second {
		return
	}
	for _, p := range d.allPools() {
		p.mu.Lock()
		for _, u := range p.order {
			u.leases.Expires = u.leases.Expires.Add(-gap)
		}
		p.mu.Unlock()
		p.notify()
	}
}

// checkControlPlane checks once whether Temporal answers.
func (d *Dispatcher) checkControlPlane(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := d.config.Control.Check(ctx); err != nil {
		if d.life.Err() == nil && d.monitor.failed() {
			d.config.Logger.Warn("lost the connection to Temporal; calls continue, unless pool.on_partition stops them",
				"fenced_after", d.config.FenceAfter, "error", err)
			for _, p := range d.allPools() {
				p.lostControl(time.Now())
			}
		}
		return
	}
	if !d.monitor.answered(time.Now()) {
		return
	}
	d.config.Logger.Info("Temporal answers again")
	for _, p := range d.allPools() {
		p.notify() // what had to wait for it
	}
}

// While Temporal cannot be reached, a worker of this host may be given up there and start on another host. A client's
// lease ends here when its time is over. Calls of a pool, which own nothing, continue until FenceAfter; with
// on_partition = "fence" every call stops at once.

// fencesLocked reports whether no call of this kind may run, because Temporal has not answered for too long. Unless the
// pool stops all calls, those under a lease run until it expires.
func (p *poolState) fencesLocked(kind targetKind, now time.Time) bool {
	m := p.dispatcher.monitor
	return m.lost.Load() &&
		(kind != underLease && m.fenced(now) || p.specKnown && p.spec.Pool.OnPartition == spec.PartitionFence)
}

// lostControl acts on the loss of Temporal.
func (p *poolState) lostControl(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.notify()
	if !p.fencesLocked(underLease, now) {
		return
	}
	p.cancelCallsLocked(api.Errorf(api.CodeUnavailable,
		"Temporal does not respond, and the pool is configured to stop its calls then (pool.on_partition = %q)",
		spec.PartitionFence))
}

// expireLocked ends a client's lease whose time is over while Temporal cannot be asked whether it was renewed, and
// cancels its calls. It returns the time until then, also without a call: one may start before.
func (u *upstream) expireLocked(now time.Time, lost bool) time.Duration {
	if !lost || u.lease == nil || u.leases.Ended != "" {
		return idleTick
	}
	if left := u.leases.Expires.Sub(now); left > 0 {
		return left
	}
	u.cancelLocked(u.lease, errExpired(u.lease.lease.ID))
	return idleTick
}

// retireForLocked takes an incarnation out of service when a lease names a later one that is not here: its worker
// continues elsewhere. Without that its gateway would check the worker out again and again.
func (u *upstream) retireForLocked(lease api.Lease) {
	if lease.Worker == u.worker && lease.Incarnation > u.incarnation && lease.Host != u.pool.dispatcher.config.HostID {
		u.retireLocked()
		u.leases = u.leases.End("the worker has moved to host " + lease.Host)
	}
}
