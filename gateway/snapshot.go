package gateway

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool"
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
	Refused map[tempool.Code]int64
	Workers []WorkerSnapshot // by name
}

// WorkerSnapshot is what a gateway counts of one worker, through all of its incarnations here.
type WorkerSnapshot struct {
	Worker           string
	Requests, Failed int64
	CallTime         time.Duration
	// Granted are the leases that this gateway got or learned of, Refused the checkouts through it that were refused.
	Granted, Refused int64
	// Here says that a process of it is here, and the rest is about that: its incarnation, whether it is leased, drains, and how many
	// calls are in flight.
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
	p.Pool, p.Refused = d.pool, make(map[tempool.Code]int64, len(refusals))
	p.Calls, p.Waits = d.books.calls.read(), d.books.waits.read()
	for i, code := range refusals {
		p.Refused[code] = d.books.refused[i].Load()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.books.prune(now)
	p.Waiting = d.queue.Len()
	for worker, a := range d.books.accounts {
		w := WorkerSnapshot{
			Worker: worker, Requests: a.requests.Load(), Failed: a.failed.Load(), CallTime: time.Duration(a.took.Load()),
			Granted: a.granted.Load(), Refused: a.refused.Load(),
		}
		if s := d.seats[worker]; s != nil && !s.gone {
			w.Here, w.Incarnation, w.Draining, w.InFlight = true, s.incarnation, s.draining, s.inFlight
			w.Leased = s.grant != nil && !s.grant.ended && now.Before(s.grant.lease.ExpiresAt)
		}
		p.Workers = append(p.Workers, w)
	}
	slices.SortFunc(p.Workers, func(a, b WorkerSnapshot) int { return strings.Compare(a.Worker, b.Worker) })
	return p, len(p.Workers) > 0 || p.Waiting > 0
}
