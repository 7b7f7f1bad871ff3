package pool

import (
	"context"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

// callCount counts calls.
type callCount struct {
	requests, failed int64
	took             time.Duration
}

func (c *callCount) add(failed bool, took time.Duration) {
	c.requests++
	if failed {
		c.failed++
	}
	c.took += took
}

func (c *callCount) usage() api.Usage {
	return api.Usage{Requests: c.requests, Failed: c.failed, TotalMS: c.took.Milliseconds()}
}

// endedUsage is the count of an incarnation whose process has ended.
type endedUsage struct {
	worker      string
	incarnation int64
	calls       callCount
	endedAt     time.Time
}

// endedUsageExpiry is how long the count of an ended incarnation is kept: usually longer than an outage of Temporal
// delays the report.
const endedUsageExpiry = 5 * time.Minute

// rememberUsageLocked keeps the count of the upstream, which is about to be removed.
func (p *poolState) rememberUsageLocked(u *upstream, now time.Time) {
	p.ended = slices.DeleteFunc(p.ended, func(e endedUsage) bool { return now.Sub(e.endedAt) >= endedUsageExpiry })
	if u.calls.requests > 0 {
		p.ended = append(p.ended, endedUsage{u.worker, u.incarnation, u.calls, now})
	}
}

// Open lets calls of its pool run on a process that has just become ready.
func (d *Dispatcher) Open(proc *process.Process) { d.enter(proc, func(*upstream) {}) }

// Resume continues with a process that an earlier agent has served: with the count of its calls, its suspension and the
// lease that counted on it, nil for none. It stays closed until its workflow has said who has leased it.
func (d *Dispatcher) Resume(proc *process.Process, usage api.Usage, suspended *api.Suspension, lease *api.Lease) {
	d.enter(proc, func(u *upstream) {
		u.calls = callCount{usage.Requests, usage.Failed, time.Duration(usage.TotalMS) * time.Millisecond}
		u.resumeSuspensionLocked(suspended)
		u.resumeLeaseLocked(lease)
	})
}

// resumeLeaseLocked closes an incarnation that was taken over until its workflow has said who has leased it. The record
// of the earlier agent counts while Temporal does not answer.
func (u *upstream) resumeLeaseLocked(recorded *api.Lease) {
	if recorded != nil {
		if ref, err := api.ParseLeaseID(recorded.ID); err == nil {
			u.adoptLocked(*recorded, ref, time.Now().Add(recorded.TTL()))
		}
	}
	u.doubtLocked()
	u.question.free, u.question.unclaimed = recorded == nil, true
}

// enter adds the upstream of a process that is ready, and sets it up before any call can start on it.
func (d *Dispatcher) enter(proc *process.Process, setUp func(*upstream)) {
	pool, _, err := api.ParseWorkerName(proc.Worker())
	if err != nil {
		return
	}
	p := d.lockPool(pool)
	if p == nil {
		return
	}
	defer p.mu.Unlock()
	if u := p.upstreamOfLocked(proc); u != nil {
		setUp(u)
		u.openedLocked()
	}
}

// Usage counts the calls of an incarnation since its start, and those in flight.
func (d *Dispatcher) Usage(worker string, incarnation int64) (usage api.Usage, inFlight int) {
	u := d.upstreamOf(worker, incarnation)
	if u == nil {
		return d.endedUsage(worker, incarnation), 0
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	return u.calls.usage(), u.inFlight
}

// NotifyAt calls notify in the background, once, when an incarnation has served so many calls; 0 is never. A later
// NotifyAt replaces an earlier one.
func (d *Dispatcher) NotifyAt(worker string, incarnation, calls int64, notify func()) {
	u := d.upstreamOf(worker, incarnation)
	if u == nil {
		return
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	u.notifyAt, u.notify = calls, notify
	u.notifyCountLocked()
}

func (u *upstream) notifyCountLocked() {
	if u.notifyAt > 0 && u.calls.requests >= u.notifyAt {
		u.notifyAt = 0
		u.pool.dispatcher.work.Go(u.notify)
	}
}

// Lease is the lease that counts on an incarnation, with the time that it lasts from now, as far as the Dispatcher
// knows; nil if it knows none.
func (d *Dispatcher) Lease(worker string, incarnation int64) *api.Lease {
	u := d.upstreamOf(worker, incarnation)
	if u == nil {
		return nil
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	if u.lease == nil || u.lease.ended || !time.Now().Before(u.lease.expires) {
		return nil
	}
	lease := u.lease.lease
	lease.TTLMS = max(1, time.Until(u.lease.expires).Milliseconds())
	return &lease
}

// FinalUsage is the Usage of an incarnation whose process has ended. It waits until its last calls are counted or ctx
// ends.
func (d *Dispatcher) FinalUsage(ctx context.Context, worker string, incarnation int64) api.Usage {
	if u := d.upstreamOf(worker, incarnation); u != nil {
		_ = u.awaitIdle(ctx) // the count leaves out calls still in flight when ctx ends
	}
	usage, _ := d.Usage(worker, incarnation)
	return usage
}

// endedUsage is the usage of an incarnation without an upstream.
func (d *Dispatcher) endedUsage(worker string, incarnation int64) api.Usage {
	pool, _, err := api.ParseWorkerName(worker)
	if err != nil {
		return api.Usage{}
	}
	p := d.knownPool(pool)
	if p == nil {
		return api.Usage{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.ended {
		if e.worker == worker && e.incarnation == incarnation {
			return e.calls.usage()
		}
	}
	return api.Usage{}
}
