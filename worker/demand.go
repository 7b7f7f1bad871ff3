package worker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

const (
	// demandInterval is the time between two samples of the demand.
	demandInterval = 250 * time.Millisecond
	// demandRepeat is after how long a demand that has not changed is reported again, and demandExpiry how long the pool
	// counts a report: so the demand of a host that is lost ends even if nobody notifies the pool. The end of its epoch
	// does, also when the agent stops.
	demandRepeat = 30 * time.Minute
	demandExpiry = 70 * time.Minute
	// specMaxAge is after how long the spec of a pool that has demand is read from the pool: a change of [scale] restarts
	// no worker.
	specMaxAge  = 30 * time.Second
	specTimeout = 5 * time.Second
)

// demandReporter measures the demand at this host's gateway for pools whose size follows it, and reports changes to
// them.
type demandReporter struct {
	host   string
	demand func() []pool.Demand
	status func(ctx context.Context, pool string) (api.PoolStatus, error)
	epoch  func() int64
	report func(pool string, d api.Demand)

	pools   map[string]*measuredPool // for run only
	reading atomic.Bool              // the spec of one pool at a time
	reads   sync.WaitGroup
}

type measuredPool struct {
	policy.Measured
	spec       atomic.Pointer[readSpec]
	forgotten  atomic.Bool // the pool has no demand of this host, but room: perhaps it was started again
	reportedAt time.Time
	epoch      int64 // of the last report; the pool forgets it when that epoch ends
}

type readSpec struct {
	spec.Spec
	at time.Time
}

func newDemandReporter(host string, demand func() []pool.Demand,
	status func(context.Context, string) (api.PoolStatus, error), epoch func() int64,
	report func(string, api.Demand)) *demandReporter {
	return &demandReporter{host: host, demand: demand, status: status, epoch: epoch, report: report,
		pools: map[string]*measuredPool{}}
}

// run reports until ctx ends, and waits for the goroutines it has started.
func (r *demandReporter) run(ctx context.Context) {
	defer r.reads.Wait()
	for now := range sleep.Ticks(ctx.Done(), demandInterval) {
		r.step(ctx, now)
	}
}

// read begins to read a pool's spec, unless one is being read. Without an answer, the last spec stays valid for longer.
func (r *demandReporter) read(ctx context.Context, pool string, p *measuredPool) {
	if !r.reading.CompareAndSwap(false, true) {
		return
	}
	r.reads.Go(func() {
		defer r.reading.Store(false)
		ctx, cancel := context.WithTimeout(ctx, specTimeout)
		defer cancel()
		known := p.spec.Load().Spec
		if status, err := r.status(ctx, pool); err == nil {
			known = status.Spec
			p.forgotten.Store(status.Scale != nil && !status.Stopping && len(status.Scale.Demand) < api.MaxDemands &&
				!slices.ContainsFunc(status.Scale.Demand, func(d api.HostDemand) bool { return d.Host == r.host }))
		}
		p.spec.Store(&readSpec{known, time.Now()})
	})
}

// step takes one sample of each pool.
func (r *demandReporter) step(ctx context.Context, now time.Time) {
	seen := map[string]bool{}
	for _, d := range r.demand() {
		p := r.pools[d.Pool]
		inUse := d.Calls+d.Waiting+d.Leases > 0
		if p == nil {
			if !inUse {
				continue
			}
			p = &measuredPool{}
			p.spec.Store(&readSpec{d.Spec, now})
			r.pools[d.Pool] = p
		}
		seen[d.Pool] = true
		if inUse && now.Sub(p.spec.Load().at) >= specMaxAge {
			r.read(ctx, d.Pool, p)
		}
		r.measure(d, p, now)
	}
	for name, p := range r.pools {
		if !seen[name] {
			r.measure(pool.Demand{Pool: name}, p, now)
			if p.Reported == 0 {
				delete(r.pools, name)
			}
		}
	}
}

func (r *demandReporter) measure(d pool.Demand, p *measuredPool, now time.Time) {
	var changed bool
	epoch := r.epoch()
	p.Measured, changed = policy.DemandMeterOf(p.spec.Load().Spec).Next(p.Measured, d.Demand, now)
	forgotten := p.forgotten.Swap(false)
	if !changed && (p.Reported == 0 || !forgotten && epoch == p.epoch && now.Sub(p.reportedAt) < demandRepeat) {
		return
	}
	p.reportedAt, p.epoch = now, epoch
	r.report(d.Pool, api.Demand{
		Host: r.host, Epoch: epoch, Load: p.Reported, Calls: d.Calls, Waiting: d.Waiting, Leases: d.Leases,
		ExpiryMS: demandExpiry.Milliseconds(),
	})
}
