package gateway

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
)

// Snapshot is what the gateway counts and sees, for metrics. Counts begin with the gateway's start.
type Snapshot struct {
	// ControlPlane says whether Temporal answered when it was last looked for, and Silence since when it has not.
	ControlPlane bool
	Silence      time.Duration
	// Fenced says that the gateway no longer trusts its own leases.
	Fenced bool
	// Connections are those open now, by the network of the listener: tcp, unix.
	Connections map[string]int64
	Pools       []PoolSnapshot // by name
}

// PoolSnapshot is what a gateway counts of one pool. A pool of which nothing is left here for some minutes is not told of.
type PoolSnapshot struct {
	Pool string
	// Waiting are the calls in the queue now.
	Waiting int
	// Calls are the times of calls that a worker has seen, from their begin to the end of the answer; Waits those that calls spent in the
	// queue, however that ended. A call that finds a worker at once waits not at all and is not among the Waits.
	Calls, Waits Times
	// Refused counts by code the calls that no worker has seen.
	Refused map[api.Code]int64
	Workers []WorkerSnapshot // by name
}

// WorkerSnapshot is what a gateway counts of one worker, through all of its incarnations here.
type WorkerSnapshot struct {
	Worker           string
	Requests, Failed int64
	CallTime         time.Duration
	// Granted are the leases that this gateway got or learned of, Refused the checkouts through it that were refused.
	Granted, Refused int64
	// Here says that a process of it is here, and the rest is about that: its newest incarnation, whether that one drains, whether any is
	// leased, and how many calls are in flight on all of them.
	Here        bool
	Incarnation int64
	Leased      bool
	Draining    bool
	InFlight    int
}

// Snapshot tells what was counted so far. It is cheap, but takes each pool's lock for a moment.
func (g *Gateway) Snapshot() Snapshot {
	now := time.Now()
	s := Snapshot{
		ControlPlane: !g.contact.lost.Load(), Silence: g.contact.silence(now), Fenced: g.contact.fenced(now), Connections: make(map[string]int64),
	}
	for _, door := range g.doors {
		s.Connections[door.Addr().Network()] += door.open.Load()
	}
	g.mu.RLock()
	desks := slices.Collect(maps.Values(g.desks))
	g.mu.RUnlock()
	for _, d := range desks {
		if pool, left := d.snapshot(now); left {
			s.Pools = append(s.Pools, pool)
		}
	}
	slices.SortFunc(s.Pools, func(a, b PoolSnapshot) int { return strings.Compare(a.Pool, b.Pool) })
	return s
}

// snapshot is the desk's part; left is false when there is nothing of the pool here any more.
func (d *desk) snapshot(now time.Time) (p PoolSnapshot, left bool) {
	p.Pool, p.Refused = d.pool, make(map[api.Code]int64, len(refusals))
	p.Calls, p.Waits = d.books.calls.read(), d.books.waits.read()
	for i, code := range refusals {
		p.Refused[code] = d.books.refused[i].Load()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prune(now)
	p.Waiting = d.queue.Len()
	rows := make(map[string]int, len(d.books.accounts))
	for worker, a := range d.books.accounts {
		rows[worker] = len(p.Workers)
		p.Workers = append(p.Workers, WorkerSnapshot{
			Worker: worker, Requests: a.requests.Load(), Failed: a.failed.Load(), CallTime: time.Duration(a.took.Load()),
			Granted: a.granted.Load(), Refused: a.refused.Load(),
		})
	}
	for _, s := range d.order {
		row, known := rows[s.worker]
		if !known || s.gone {
			continue
		}
		w := &p.Workers[row]
		if s.incarnation >= w.Incarnation {
			w.Here, w.Incarnation, w.Draining = true, s.incarnation, s.draining
		}
		w.Leased = w.Leased || s.grant != nil && !s.grant.ended && now.Before(s.grant.lease.ExpiresAt)
		w.InFlight += s.inFlight
	}
	slices.SortFunc(p.Workers, func(a, b WorkerSnapshot) int { return strings.Compare(a.Worker, b.Worker) })
	return p, len(p.Workers) > 0 || p.Waiting > 0
}
