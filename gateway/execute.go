package gateway

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
)

// Execute is CallPool for a workflow's activity: placed is called, under a lock, as soon as the call has a place in the queue or on a
// worker, and begun before its request is sent; begun's error is the call's, and keeps it from being sent.
func (g *Gateway) Execute(ctx context.Context, pool string, r api.ExecuteRequest, placed func(), begun func(worker string, incarnation int64) error) ([]byte, error) {
	response, err := g.CallPool(ctx, pool, Request{Method: r.Method, Session: r.Session, Body: r.Params, placed: placed, begun: begun})
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// Spare counts the calls of a pool that could begin on this host now, beyond those that wait already: what it may be worth asking
// others for. When there are none, changed is closed when there may be some; a worker that somebody gives back behind the gateway's
// back is not noticed by it.
func (g *Gateway) Spare(pool string) (spare int, changed <-chan struct{}) {
	d, _ := g.discover(pool)
	if d == nil {
		return 0, nil
	}
	now := time.Now()
	fenced, lost := g.contact.fenced(now), g.contact.lost.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shutBy == nil && !fenced {
		for _, s := range d.order {
			spare += s.spare(now, lost)
		}
		spare -= d.queue.Len()
	}
	if spare > 0 {
		return spare, nil
	}
	if d.freed == nil {
		d.freed = make(chan struct{})
	}
	return 0, d.freed
}

// spare is how many calls the worker could take that the gateway would have to lease first or has leased, under mu.
func (s *seat) spare(now time.Time, lost bool) int {
	gr := s.grant
	switch {
	case s.gone || s.draining || s.desk.limited(s, now):
		return 0
	case gr != nil && gr.ours && gr.fatal != "":
		return 0
	case gr != nil && !gr.ours && !gr.ended && now.Before(gr.lease.ExpiresAt): // somebody else has it
		return 0
	case (gr == nil || !gr.ours) && (lost || now.Before(s.retryAt) || s.desk.spokenFor(s)): // it was asked for a moment ago, or is not to be asked for
		return 0
	}
	load := s.inFlight
	if s.conn != nil {
		load = max(load, s.conn.InFlight())
	}
	return max(0, s.capacity()-load)
}

// tellFreed wakes who waits for a worker to spare, under mu.
func (d *desk) tellFreed() {
	if d.freed != nil {
		close(d.freed)
		d.freed = nil
	}
}
