package worker

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

const (
	// demandInterval is the time between two samples of the demand.
	demandInterval = 250 * time.Millisecond
	// demandRepeat is after how long a demand that has not changed is reported again, and demandExpiry how long the pool
	// counts a report: so the demand of a host that is lost ends even if nobody notifies the pool.
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

	// Only run uses these.
	pools map[string]*measuredPool
	specs chan poolSpec
}

type measuredPool struct {
	policy.Measured
	spec       spec.Spec
	specAt     time.Time // when it was read from the pool
	reading    bool
	reportedAt time.Time
}

type poolSpec struct {
	pool string
	spec spec.Spec
	err  error
}

func newDemandReporter(host string, demand func() []pool.Demand,
	status func(context.Context, string) (api.PoolStatus, error), epoch func() int64,
	report func(string, api.Demand)) *demandReporter {
	return &demandReporter{host: host, demand: demand, status: status, epoch: epoch, report: report,
		pools: map[string]*measuredPool{}, specs: make(chan poolSpec)}
}

// run reports until ctx ends, and waits for the goroutines it has started.
func (r *demandReporter) run(ctx context.Context) {
	reading := false // one pool's spec at a time
	ticker := time.NewTicker(demandInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			if reading {
				<-r.specs
			}
			return
		case got := <-r.specs:
			reading = false
			r.learned(got)
		case now := <-ticker.C:
			r.step(now, func(pool string) bool {
				if reading {
					return false
				}
				reading = true
				go func() {
					bound, cancel := context.WithTimeout(ctx, specTimeout)
					defer cancel()
					status, err := r.status(bound, pool)
					r.specs <- poolSpec{pool, status.Spec, err}
				}()
				return true
			})
		}
	}
}

// step takes one sample of each pool. read begins to read a pool's spec, unless another one is being read.
func (r *demandReporter) step(now time.Time, read func(pool string) bool) {
	seen := map[string]bool{}
	for _, d := range r.demand() {
		p := r.pools[d.Pool]
		inUse := d.Calls+d.Waiting+d.Leases > 0
		if p == nil {
			if !inUse {
				continue
			}
			p = &measuredPool{spec: d.Spec, specAt: now}
			r.pools[d.Pool] = p
		}
		seen[d.Pool] = true
		if inUse && now.Sub(p.specAt) >= specMaxAge && !p.reading {
			p.reading = read(d.Pool)
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
	if !p.spec.Scale.Follows() {
		p.Measured = policy.Measured{}
		return
	}
	var changed bool
	p.Measured, changed = policy.DemandMeterOf(p.spec).Next(p.Measured, d.Demand, now)
	if !changed && (p.Reported == 0 || now.Sub(p.reportedAt) < demandRepeat) {
		return
	}
	p.reportedAt = now
	r.report(d.Pool, api.Demand{
		Host: r.host, Epoch: r.epoch(), Load: p.Reported, Calls: d.Calls, Waiting: d.Waiting, Leases: d.Leases,
		ExpiryMS: demandExpiry.Milliseconds(),
	})
}

// learned stores the spec of a pool. Without an answer, the last spec stays valid for longer.
func (r *demandReporter) learned(got poolSpec) {
	p := r.pools[got.pool]
	if p == nil {
		return
	}
	p.reading, p.specAt = false, time.Now()
	if got.err == nil {
		p.spec = got.spec
	}
}

// end reports that this host has no demand any more. It must not be called before run has returned.
func (r *demandReporter) end() {
	for pool, p := range r.pools {
		if p.Reported > 0 {
			r.report(pool, api.Demand{Host: r.host, Epoch: r.epoch()})
		}
	}
}
