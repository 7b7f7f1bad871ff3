package dispatch

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
)

// Execute is CallPool for an activity. queued is called, under a lock, as soon as the call is queued or has started.
// started is called before the request is sent; its error is the call's and keeps the request from being sent.
func (d *Dispatcher) Execute(ctx context.Context, pool string, r api.ExecuteRequest, queued func(),
	started func(worker string, incarnation int64) error) ([]byte, error) {
	response, err := d.CallPool(ctx, pool,
		Request{Method: r.Method, Session: r.Session, Body: r.Params, onQueued: queued, onStart: started})
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// FreeSlots is the number of calls of a pool that could start on this host now, in addition to the queued ones. If it
// is 0, changed is closed when that may have changed; it misses workers that a client checks in without this gateway.
func (d *Dispatcher) FreeSlots(pool string) (free int, changed <-chan struct{}) {
	p, _ := d.discover(pool)
	if p == nil {
		return 0, nil
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := d.monitor.lost.Load()
	if p.closed == nil && !p.fencesLocked(now) {
		for _, u := range p.order {
			free += u.freeSlotsLocked(now, lost)
		}
		free -= p.queue.Len() + len(p.clients.waiting)*max(1, p.spec.Pool.MaxInflight) // a client takes a whole worker
	}
	if free > 0 {
		return free, nil
	}
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	return 0, p.freed
}

// freeSlotsLocked is the number of calls that the worker could take, if the Dispatcher leases it or may lease it.
func (u *upstream) freeSlotsLocked(now time.Time, lost bool) int {
	l := u.lease
	switch {
	case u.gone || u.draining || u.suspension != nil || u.pool.rateLimitedLocked(u, now):
		return 0
	case l != nil && l.own && l.fatal != "":
		return 0
	case l != nil && !l.own && !l.ended && now.Before(l.expires): // a client's
		return 0
	case (l == nil || !l.own) && (lost || now.Before(u.retryAt) || u.pool.leasedByOtherLocked(u)):
		return 0
	}
	return max(0, u.capacity()-u.currentLoadLocked())
}
