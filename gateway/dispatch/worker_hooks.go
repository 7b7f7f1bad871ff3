package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// CallHook calls a hook about a session on one worker of this host: an optional method that takes the session's id.
// called is false without an error if the worker does not offer the hook. The call runs under a lease of the
// Dispatcher's own and waits for the worker until ctx ends, ahead of all queued calls. Error codes are worker_not_found
// if no process of the worker lives here, busy if it was not free in time, draining, and those of Call.
func (d *Dispatcher) CallHook(ctx context.Context, worker, hook, session string) (called bool, err error) {
	pool, _, err := api.ParseWorkerName(worker)
	if err != nil {
		return false, err
	}
	p, _ := d.discover(pool)
	if p == nil {
		return false, errNoProcess(worker, d.config.HostID)
	}
	offered, err := p.offers(worker, hook)
	if err != nil || !offered {
		return false, err
	}
	body, err := json.Marshal([]string{session})
	if err != nil {
		return false, api.Errorf(api.CodeInvalid, "session %q cannot be sent to a worker: %w", session, err)
	}
	c, err := d.Do(ctx, Target{kind: reserving, pool: pool, worker: worker},
		Request{Method: hook, Session: session, Body: body}, exchange)
	if api.CodeOf(err) == api.CodeMethodNotFound {
		return false, nil
	}
	return c != nil, err
}

// offers reports whether the worker listed the method in its hello.
func (p *poolState) offers(worker, method string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.newestLiveLocked(worker)
	if u == nil {
		return false, errNoProcess(worker, p.dispatcher.config.HostID)
	}
	return u.offersHook(method), nil
}

// reservedPoll is the interval at which a call that waits for one worker tries to start. No other call of the pool
// starts there meanwhile.
const reservedPoll = 2 * time.Millisecond

// waitFor reserves the target's worker for the call until it has a free slot, and starts the call there.
func (p *poolState) waitFor(c *Call, t *Target) error {
	p.mu.Lock()
	p.reserved[t.worker]++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		if p.reserved[t.worker]--; p.reserved[t.worker] == 0 {
			delete(p.reserved, t.worker)
		}
		p.mu.Unlock()
		p.notify()
	}()
	for range sleep.Ticks(c.ctx.Done(), reservedPoll) {
		if now := time.Now(); p.dispatcher.monitor.fenced(now) {
			return errFenced(p.dispatcher.monitor.outage(now))
		}
		if _, admission, err := p.tryStart(c, t); admission != noSlot {
			return err
		}
	}
	if err := c.cause(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return api.Errorf(api.CodeBusy, "%s was not free in time; it serves calls or is leased by another holder",
		t.worker).After(time.Second)
}
