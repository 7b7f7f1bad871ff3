package pool

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tempool/tempool/api"
)

// CallHook calls a hook about a session on one worker of this host: an optional method that takes the session's id.
// called is false without an error if the worker does not offer the hook. The call runs as one of the pool
// and waits for the worker until ctx ends, ahead of all queued calls. Error codes are worker_not_found
// if no process of the worker lives here, busy if it was not free in time, draining, and those of Call.
func (d *Dispatcher) CallHook(ctx context.Context, worker, hook, session string) (called bool, err error) {
	pool, _, err := api.ParseWorkerName(worker)
	if err != nil {
		return false, err
	}
	p := d.knownPool(pool)
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
	c, err := d.Do(ctx, Target{kind: aheadOfAll, pool: pool, worker: worker},
		Request{Method: hook, Session: session, Body: body}, exchange)
	if api.CodeOf(err) == api.CodeMethodNotFound {
		return false, nil
	}
	if c == nil && api.CodeOf(err) == api.CodeDeadlineExceeded {
		err = api.Errorf(api.CodeBusy, "%s was not free in time; it serves calls or is leased by a client",
			worker).After(time.Second)
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

// maxHookWait bounds the wait for a worker that a hook is to run on; its caller's deadline comes first.
const maxHookWait = time.Hour
