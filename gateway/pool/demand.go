package pool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
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
	d.Waiting, d.Leases = p.queue.Len()+p.heldCalls, p.queue.Clients()+p.checkouts
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

const (
	// referAfter is how long calls wait for a worker of this host before the Dispatcher looks for one on another host, and
	// then again.
	referAfter = time.Second
	// referTimeout bounds that look.
	referTimeout = 5 * time.Second
)

// referQueueLocked refers the queued calls to other gateways if the pool's workers have started on their hosts only.
func (p *poolState) referQueueLocked(now time.Time) {
	if p.queue.Len() == 0 || slices.ContainsFunc(p.order, func(u *upstream) bool { return !u.is(gone) }) {
		p.noWorkerSince = time.Time{}
		return
	}
	if p.noWorkerSince.IsZero() {
		p.noWorkerSince = now
	}
	if p.referring || now.Sub(p.noWorkerSince) < referAfter {
		return
	}
	p.referring, p.noWorkerSince = true, now
	p.dispatcher.work.Go(func() {
		ctx, cancel := context.WithTimeout(p.dispatcher.life, referTimeout)
		defer cancel()
		var elsewhere api.OtherHostError
		status, err := p.dispatcher.config.Control.Status(ctx, p.pool)
		if err == nil {
			err = availability(status, p.dispatcher.config.HostID)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.referring = false
		if !errors.As(err, &elsewhere) || slices.ContainsFunc(p.order, func(u *upstream) bool { return !u.is(gone) }) {
			return
		}
		p.roster = roster{time.Now(), status, err}
		reached := p.dispatcher.reachesAny(err)
		for _, w := range slices.Collect(p.queue.All()) {
			if !w.checkout && !(reached && w.call.elsewhere != nil) { // clients ask the workers there, and calls go there
				p.queue.Remove(w)
				w.started <- err
			}
		}
	})
}
