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
// writes what the process keeps of them to the store. Calls of such a session wait in a line of their own until then,
// so that the next process, or another worker, does not read the store too early. A program without the hook, or that
// has had no call, keeps nothing, and nothing is held.

// maxReleased bounds the sessions that one incarnation releases.
const maxReleased = 10_000

// holdSessionsLocked holds the sessions of an incarnation that takes no further call of the pool, including sessions of
// calls in the queue.
func (u *upstream) holdSessionsLocked() {
	p := u.pool
	if u.releasing || u.is(gone) || u.served.Usage().Requests+u.served.InFlight.Load() == 0 ||
		!u.offersHookLocked(api.HookSessionRelease) {
		return
	}
	u.releasing = true
	var sessions []string
	bound, _ := p.dispatcher.config.Affinity.Bindings(p.pool, u.worker, "", maxReleased)
	for _, b := range bound {
		sessions = append(sessions, b.Session)
	}
	for c := range u.calls { // a call that has waited in the queue binds its session only when it is answered
		if c.lease == nil {
			sessions = append(sessions, c.session)
		}
	}
	for _, session := range sessions {
		if session != "" && p.held[session] == nil {
			p.held[session] = u
		}
	}
	for _, w := range p.queue.All() {
		if w.call != nil && w.held == "" && p.held[w.call.session] != nil && p.queue.Remove(w) {
			w.held = w.call.session
			p.queue.Push(w)
		}
	}
}

// releaseSessions calls the hook for each session held for the incarnation, as many at a time as the program takes
// calls, until ctx ends; then the rest continue without. Each hook but the last has half of the time that is left, so
// that one that hangs leaves time for the others.
func (u *upstream) releaseSessions(ctx context.Context) {
	p := u.pool
	p.mu.Lock()
	var sessions []string
	for session, by := range p.held {
		if by == u {
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
				p.dispatcher.config.Events.Emit(api.EventSessionNotReleased, api.WorkerSource(u.worker), time.Now(),
					api.SessionEvent{Host: p.dispatcher.config.HostID, Session: session, Worker: u.worker,
						Incarnation: u.incarnation, Reason: shorten(err.Error())})
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
		p.dispatcher.config.Logger.Warn("sessions not released before the end of their process", "worker", u.worker,
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
	if p.held[session] != u {
		return
	}
	delete(p.held, session)
	for w := p.queue.First(line{session: session}); w != nil; w = p.queue.First(line{session: session}) {
		p.queue.Remove(w)
		w.held = ""
		p.queue.Push(w)
		if err := p.suspendedLocked(w.worker); err != nil {
			p.refuseLocked(w, err)
		}
	}
	p.dispatchQueueLocked(time.Now())
	p.askPeersLocked()
}
