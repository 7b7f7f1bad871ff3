package dispatch

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

// Resume continues with a process that an earlier agent has served: with the count of its calls and its suspension, nil
// for none.
func (d *Dispatcher) Resume(proc *process.Process, usage api.Usage, suspended *api.Suspension) {
	pool, _, err := api.ParseWorkerName(proc.Worker())
	if err != nil {
		return
	}
	p := d.poolState(pool)
	if p == nil {
		return
	}
	if u := p.upstreamOf(proc); u != nil {
		u.pool.mu.Lock()
		defer u.pool.mu.Unlock()
		u.calls = callCount{usage.Requests, usage.Failed, time.Duration(usage.TotalMS) * time.Millisecond}
		u.resumeSuspensionLocked(suspended)
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

// Lease is the lease that counts on an incarnation, as far as the Dispatcher knows; nil if it knows none.
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
