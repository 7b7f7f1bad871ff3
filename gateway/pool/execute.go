package pool

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
	p := d.knownPool(pool)
	if p == nil {
		return 0, nil
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed == nil && !p.fencesLocked(now) {
		for _, u := range p.order {
			if load, open := u.loadLocked(now); open {
				free += u.capacity() - load
			}
		}
		free -= p.queue.Len() + p.queue.Clients()*max(1, p.spec.Pool.MaxInflight) // a client takes a whole worker
	}
	if free > 0 {
		return free, nil
	}
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	return 0, p.freed
}
