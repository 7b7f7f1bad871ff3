package pool

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
)

// An incarnation that ends gracefully releases the sessions bound to its worker: the program's hook session.release
// writes what the process keeps of them to the store. Calls of such a session are held back until then, so that the
// next process, or another worker, does not read the store too early. A program without the hook, or that has had no
// call, keeps nothing, and nothing is held.

// maxReleased bounds the sessions that one incarnation releases.
const maxReleased = 10_000

// heldError says that the calls of a session are held back until released is closed.
type heldError struct{ released <-chan struct{} }

func (*heldError) Error() string {
	return "the call waits until the process that held its session has released it"
}

// heldBy is the heldError that err is, or nil.
func heldBy(err error) *heldError {
	h, _ := err.(*heldError) // it is never wrapped
	return h
}

// held is a session whose calls are held back for an incarnation.
type held struct {
	by       *upstream
	released chan struct{}
}

// holdSessionsLocked holds the sessions of an incarnation that takes no further call of the pool, including sessions of
// calls in the queue.
func (u *upstream) holdSessionsLocked() {
	p, affinity := u.pool, u.pool.dispatcher.config.Affinity
	if u.releasing || u.is(gone) || affinity == nil || u.calls.requests+int64(u.inFlight) == 0 ||
		!u.offersHook(api.HookSessionRelease) {
		return
	}
	u.releasing = true
	sessions, _ := affinity.Page(u.worker, "", maxReleased)
	for c := range u.poolCalls { // a call that has waited in the queue binds its session only when it is answered
		sessions = append(sessions, c.session)
	}
	for _, session := range sessions {
		if session != "" && p.held[session] == nil {
			p.held[session] = &held{u, make(chan struct{})}
		}
	}
	if len(p.held) == 0 {
		return
	}
	for _, w := range slices.Collect(p.queue.All()) {
		if w.checkout {
			continue
		}
		if h := p.held[w.call.session]; h != nil && p.queue.Remove(w) {
			p.heldCalls++
			w.started <- &heldError{h.released}
		}
	}
}

// heldLocked is the error of a call whose session is held, nil for any other. The caller waits by awaitRelease.
func (p *poolState) heldLocked(t *Target) error {
	if len(p.held) == 0 || t.kind != inQueue || t.session == "" {
		return nil
	}
	h := p.held[t.session]
	switch {
	case h == nil:
		return nil
	case p.heldCalls >= p.spec.Queue.Size:
		return api.Errorf(api.CodeQueueFull, "%d calls of pool %s wait until sessions are released (queue.size)", p.heldCalls,
			p.pool).After(time.Second)
	}
	p.heldCalls++
	return &heldError{h.released}
}

// awaitRelease waits until the call may be tried again, at most queue.timeout.
func (p *poolState) awaitRelease(c *Call, h *heldError) error {
	p.mu.Lock()
	limit := p.specLocked().Queue.Timeout.D()
	p.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	defer func() {
		p.mu.Lock()
		p.heldCalls--
		p.mu.Unlock()
	}()
	select {
	case <-h.released:
		return nil
	case <-timer.C:
		return api.Errorf(api.CodeQueueTimeout, "the session was not released within %s (queue.timeout)",
			limit).After(time.Second)
	case <-c.ctx.Done():
		return c.cause()
	}
}

// releaseSessions calls the hook for each session held for the incarnation, as many at a time as the program takes
// calls, until ctx ends; then the rest continue without. Each hook but the last has half of the time that is left, so
// that one that hangs leaves time for the others.
func (u *upstream) releaseSessions(ctx context.Context) {
	p := u.pool
	p.mu.Lock()
	var sessions []string
	for session, h := range p.held {
		if h.by == u {
			sessions = append(sessions, session)
		}
	}
	p.mu.Unlock()
	slices.Sort(sessions)
	var failed atomic.Int64
	var hooks errgroup.Group
	hooks.SetLimit(u.capacity())
	for i, session := range sessions {
		hooks.Go(func() error {
			err := u.release(ctx, session, i == len(sessions)-1)
			if err != nil {
				u.emitNotReleased(session, err)
				failed.Add(1)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.continueCallsLocked(session, u)
			return err
		})
	}
	if err := hooks.Wait(); err != nil {
		p.stats.notReleased.Add(failed.Load())
		p.dispatcher.logger.Warn("sessions not released before the end of their process", "worker", u.worker,
			"incarnation", u.incarnation,
			"sessions", failed.Load(), "of", len(sessions), "error", err)
	}
}

func (u *upstream) release(ctx context.Context, session string, last bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if end, bounded := ctx.Deadline(); bounded && !last {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	return u.callHook(ctx, api.HookSessionRelease, session)
}

// continueCallsLocked lets the calls of a session continue, if they are held for u.
func (p *poolState) continueCallsLocked(session string, u *upstream) {
	if h := p.held[session]; h != nil && h.by == u {
		close(h.released)
		delete(p.held, session)
	}
}

// continueAllCallsLocked is continueCallsLocked for all sessions.
func (u *upstream) continueAllCallsLocked() {
	for session := range u.pool.held {
		u.pool.continueCallsLocked(session, u)
	}
}
