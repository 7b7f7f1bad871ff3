package pool

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// Health is the state of the Dispatcher and of its connection to Temporal.
type Health struct {
	// ControlPlane reports whether Temporal answered the last health check, and Silence for how long it has not.
	ControlPlane bool
	Outage       time.Duration
	// Fenced reports that Temporal has not answered for so long that calls of pools are rejected.
	Fenced bool
	// Closing reports that the Dispatcher rejects all calls.
	Closing bool
}

// Health reports the current state.
func (d *Dispatcher) Health() Health {
	now := time.Now()
	return Health{ControlPlane: !d.monitor.lost.Load(), Outage: d.monitor.outage(now), Fenced: d.monitor.fenced(now),
		Closing: d.closing.Load()}
}

// Snapshot are the Dispatcher's counts and gauges for metrics. Counts begin with the Dispatcher's start.
type Snapshot struct {
	Health
	Pools []PoolSnapshot // by name
}

// PoolSnapshot are the counts of one pool. A pool that has had no worker on this host for some minutes is left out.
type PoolSnapshot struct {
	Pool string
	// Waiting is the number of calls in the queue now.
	Waiting int
	// WaitingClients is the number of clients that wait for a lease now.
	WaitingClients int
	// Calls has the seconds of calls that a worker has seen, from their start to the end of the answer. Waits has those
	// that calls spent in the queue, whatever their result; a call that started at once is not among them.
	Calls, Waits prometheus.Metric
	// Refused counts by code the calls that no worker has seen.
	Refused map[api.Code]int64
	// NotReleased counts the sessions whose process ended without releasing them, for their hook failed or had no time
	// left.
	NotReleased int64
	// Hits and Misses count the lookups of the worker of a session that found one or none. Bindings is the number of
	// sessions that have one now.
	Hits, Misses int64
	Bindings     int
	Workers      []WorkerSnapshot // by name
}

// WorkerSnapshot are the counts of one worker, over all of its incarnations on this host.
type WorkerSnapshot struct {
	Worker string
	api.Usage
	CallTime time.Duration
	// Granted counts the leases that this gateway acquired or was shown, Refused the checkouts through it that were
	// refused.
	Granted, Refused int64
	// The other fields are about the worker's processes on this host: the newest incarnation, 0 for none, and whether
	// it drains, whether any incarnation is leased, and the calls in flight on all of them.
	Incarnation int64
	Leased      bool
	Draining    bool
	InFlight    int
}

// Snapshot returns the current counts. It takes each pool's lock for a moment. A pool that only was looked for is left
// out.
func (d *Dispatcher) Snapshot() Snapshot {
	s, now, bindings := Snapshot{Health: d.Health()}, time.Now(), d.config.Affinity.Pools()
	for _, p := range d.allPools() {
		pool := p.snapshot(now)
		pool.Bindings = bindings[p.pool]
		if len(pool.Workers) > 0 || pool.Waiting > 0 || pool.WaitingClients > 0 || pool.Bindings > 0 || pool.Misses > 0 ||
			slices.Max(slices.Collect(maps.Values(pool.Refused))) > 0 { // if no worker has come up, it may have nothing else
			s.Pools = append(s.Pools, pool)
		}
	}
	slices.SortFunc(s.Pools, func(a, b PoolSnapshot) int { return strings.Compare(a.Pool, b.Pool) })
	return s
}

// Waiting counts, by pool, the calls and the clients that wait for a worker. Pools without any are left out.
func (d *Dispatcher) Waiting() map[string]int {
	waiting := map[string]int{}
	for _, p := range d.allPools() {
		p.mu.Lock()
		if n := p.waitingLocked(); n > 0 {
			waiting[p.pool] = n
		}
		p.mu.Unlock()
	}
	return waiting
}

// LastMinute returns the figures of the last minute, by pool, of at most this many, the busiest. Pools without any are
// left out.
func (d *Dispatcher) LastMinute(most int) map[string]api.Figures {
	figures, now := map[string]api.Figures{}, time.Now()
	for _, p := range d.allPools() {
		if one := p.stats.figures.lastMinute(now); one != nil {
			figures[p.pool] = *one
		}
	}
	busiest := slices.SortedFunc(maps.Keys(figures),
		func(a, b string) int { return cmp.Compare(figures[b].Calls, figures[a].Calls) })
	for _, pool := range busiest[min(most, len(busiest)):] {
		delete(figures, pool)
	}
	return figures
}

// waitingLocked counts the calls and the clients that wait for a worker.
func (p *poolState) waitingLocked() int { return p.queue.expiring.Len() }

func (p *poolState) snapshot(now time.Time) PoolSnapshot {
	s := PoolSnapshot{Pool: p.pool, Refused: make(map[api.Code]int64, len(refusalCodes)), Calls: p.stats.calls,
		Waits: p.stats.waits, NotReleased: p.stats.notReleased.Load(),
		Hits: p.stats.hits.Load(), Misses: p.stats.misses.Load()}
	for i, code := range refusalCodes {
		s.Refused[code] = p.stats.refused[i].Load()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireStatsLocked(now)
	s.Waiting, s.WaitingClients = p.queue.Len(), p.queue.Clients()
	rows := make(map[string]int, len(p.stats.workers))
	for worker, w := range p.stats.workers {
		rows[worker] = len(s.Workers)
		s.Workers = append(s.Workers, WorkerSnapshot{
			Worker: worker, Usage: w.served.Usage(), CallTime: w.served.Took(), Granted: w.granted, Refused: w.refused,
		})
	}
	for _, u := range p.order {
		if u.leases.Reserved { // for a client whose checkout is under way
			s.WaitingClients++
		}
		row, known := rows[u.worker]
		if !known || u.is(gone) {
			continue
		}
		w := &s.Workers[row]
		if u.incarnation >= w.Incarnation {
			w.Incarnation, w.Draining = u.incarnation, u.is(draining)
		}
		w.Leased = w.Leased || u.leaseInUseLocked(now) != nil
		w.InFlight += u.inFlight()
	}
	slices.SortFunc(s.Workers, func(a, b WorkerSnapshot) int { return strings.Compare(a.Worker, b.Worker) })
	return s
}

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
	if !p.specKnown || p.dispatcher.closing.Load() {
		return Demand{}, false
	}
	d := Demand{Pool: p.pool, Spec: p.spec}
	d.Waiting, d.Leases = p.queue.Len(), p.queue.Clients()
	d.QueueFull, d.NoWorkers = d.Waiting >= p.spec.Queue.Size, true
	for _, u := range p.order {
		d.NoWorkers = d.NoWorkers && u.is(gone)
		d.Calls += u.underLocked(nil)
		if u.leases.Reserved || u.leaseInUseLocked(now) != nil {
			d.Leases++
		}
	}
	return d, true
}
