package pool

import (
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// Demand is the demand for one pool at this gateway.
type Demand struct {
	Pool string
	policy.Demand
	// Spec is the newest that the gateway has seen, of a process or of the pool.
	Spec spec.Spec
}

// Demand returns the demand for each pool that the Dispatcher knows, by name. It takes each pool's lock for a moment.
func (d *Dispatcher) Demand() []Demand {
	now := time.Now()
	var all []Demand
	for _, p := range d.allPools() {
		if demand, known := p.demand(now); known {
			all = append(all, demand)
		}
	}
	slices.SortFunc(all, func(a, b Demand) int { return strings.Compare(a.Pool, b.Pool) })
	return all
}

func (p *poolState) demand(now time.Time) (Demand, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.specKnown || p.closed != nil {
		return Demand{}, false
	}
	d := Demand{Pool: p.pool, Spec: p.spec}
	d.Waiting, d.Leases = p.queue.Len(), p.queue.Clients()+p.checkouts
	d.QueueFull, d.NoWorkers = d.Waiting >= p.spec.Queue.Size, true
	for _, u := range p.order {
		d.NoWorkers = d.NoWorkers && u.is(gone)
		d.Calls += len(u.poolCalls)
		if u.leaseInUseLocked(now) != nil {
			d.Leases++
		}
	}
	return d, true
}
