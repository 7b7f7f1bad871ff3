package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// poolState is the state of one pool on this host: its workers and the calls that wait for one.
type poolState struct {
	dispatcher *Dispatcher
	pool       string
	wake       chan struct{} // wakes run
	stats      poolStats

	mu        sync.Mutex
	order     []*upstream // the incarnations that live here, by worker and number; see incarnations.go
	older     int         // how many of them are not the newest of their worker
	leaving   []*upstream // removed from order before their last calls have ended
	queue     *queue      // of calls, and of clients that wait for a lease
	spec      spec.Spec   // the newest seen
	specKnown bool
	timeout   atomic.Int64 // call.timeout of spec, for readers without the lock; 0 until it is known
	chosen    int64        // the highest of any upstream
	// questionAt is when a workflow may be asked next whether its lease was returned.
	questionAt time.Time
	held       map[string]*upstream // by session: the incarnation that has not released it; see release.go
	scoredAt   time.Time
	changes    sleep.Changes // of what await waits for: a call has ended, or a worker has opened or is gone
	nextTick   time.Time     // when run ticks next unless it is woken
	roster     roster        // as it was last read
	idleSince  time.Time     // zero while the state is in use
	evicted    bool          // another state has taken this one's place, or will
}

func newPoolState(d *Dispatcher, pool string) *poolState {
	return &poolState{
		dispatcher: d, pool: pool, wake: make(chan struct{}, 1),
		stats: newPoolStats(pool), held: make(map[string]*upstream), queue: newQueue(),
	}
}

// notify wakes run.
func (p *poolState) notify() { sleep.Wake(p.wake) }

// upstreamOfLocked returns the upstream of a process and adds it if it is missing. It returns nil for a process that is
// not ready.
func (p *poolState) upstreamOfLocked(proc *process.Process) *upstream {
	// an older one counts too, perhaps after the newest has died
	if u := p.findLocked(proc.Worker(), proc.Incarnation()); u != nil {
		return u
	}
	newest := p.newestLocked(proc.Worker())
	if p.dispatcher.closing.Load() || ended(proc) || proc.Info().ReadyAt.IsZero() {
		return nil
	}
	u := newUpstream(p, proc)
	at, _ := p.placeLocked(u.worker, u.incarnation)
	p.order = slices.Insert(p.order, at, u)
	if newest != nil { // it stays until its process has ended
		p.older++
		if newest.incarnation < u.incarnation && ended(newest.process) {
			p.markGoneLocked(newest)
		}
	}
	p.changes.Announce()
	if p.specKnown && slices.ContainsFunc(spec.Changes(p.spec, *u.spec), spec.Change.RestartsWorkers) {
		p.stats.figures.update(time.Now(), func(f *api.Figures) { f.Processes.Add(api.Deployed, 1) })
	}
	p.setSpecLocked(*u.spec)
	p.watch(u)
	p.notify()
	return u
}

// watch takes the upstream out of service when its connection breaks or its process ends, whichever comes first. It
// needs no goroutine until then.
func (p *poolState) watch(u *upstream) {
	p.watchConn(u)
	u.process.AfterEnd(func() {
		outcome := string(u.process.Exit().Outcome())
		p.stats.figures.update(time.Now(), func(f *api.Figures) { f.Processes.Add(outcome, 1) })
		if p.remove(u) { // else the worker goes on with another process
			p.dispatcher.config.Affinity.UnbindWorker(u.worker)
		}
	})
}

func (p *poolState) watchConn(u *upstream) {
	if conn := u.conn; conn != nil {
		if receive := p.dispatcher.config.Receive; receive != nil && u.spec.MCP.On() {
			wire.Receive(conn, func(m wire.Incoming) bool { return receive(p.pool, u.worker, u.incarnation, m) })
		}
		if connect := p.dispatcher.config.Connect; connect != nil && u.spec.MCP.On() &&
			u.spec.IsolatedBy() == spec.IsolateNone {
			p.dispatcher.work.Go(func() { connect(p.pool, conn, u.process.Era()) })
		}
		wire.AfterDone(conn, func() {
			p.mu.Lock()
			current := conn == u.conn && !u.use.ending
			p.mu.Unlock()
			if current {
				p.takeOut(u)
			}
		})
	}
}

func (p *poolState) takeOut(u *upstream) {
	p.mu.Lock()
	if !u.is(gone) {
		p.markGoneLocked(u)
	}
	p.mu.Unlock()
	if u.plain != nil {
		u.plain.Close()
	}
}

// remove takes the upstream out of service and forgets it, but for its calls in flight. From then on a lease on it is
// rejected by its number alone. It reports whether that was the last one of its worker that lives.
func (p *poolState) remove(u *upstream) bool {
	p.takeOut(u)
	defer p.notify()
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, found := p.placeLocked(u.worker, u.incarnation); found && p.order[at] == u {
		p.order = slices.Delete(p.order, at, at+1)
		if p.newestLocked(u.worker) != nil {
			p.older--
		} else {
			u.stats.goneSince = time.Now()
		}
		if u.inFlight() > 0 {
			p.leaving = append(p.leaving, u)
		}
	}
	p.changes.Announce()
	return p.newestLiveLocked(u.worker) == nil
}

// removeAll ends the service of all processes.
func (p *poolState) removeAll() {
	p.mu.Lock()
	all := slices.Clone(p.order)
	p.mu.Unlock()
	for _, u := range all {
		p.remove(u)
	}
}

// markGoneLocked takes the upstream out of service. Its lease ended with the process, which the workflow notices
// without the gateway.
func (p *poolState) markGoneLocked(u *upstream) {
	u.closed[gone] = "its process has ended"
	u.use = use{}
	u.endSuspensionLocked(u.suspendGeneration)
	for session := range p.held {
		p.continueCallsLocked(session, u)
	}
	u.leases = u.leases.End("the process has ended")
	p.changes.Announce()
	p.notify()
}

func (p *poolState) setSpecLocked(s spec.Spec) {
	known, env := p.specKnown, !maps.Equal(p.spec.KeyEnv(), s.KeyEnv())
	by := p.spec.IsolatedBy()
	p.spec, p.specKnown = s, true
	if known && (env || by != s.IsolatedBy()) {
		for _, w := range p.queue.All() {
			err := checkKey(p.pool, s.IsolatedBy(), w.key)
			if err == nil && env {
				err = api.Errorf(api.CodeBusy, "isolation.env of pool %s has changed; call again", p.pool).After(waitHint)
			}
			if err != nil {
				p.refuseLocked(w, err)
			}
		}
	}
	p.timeout.Store(int64(s.Call.Timeout))
}

// await waits until done, which is called with the lock held, returns true. It fails if ctx ends first.
func (p *poolState) await(ctx context.Context, done func() bool) error {
	for {
		p.mu.Lock()
		if done() {
			p.mu.Unlock()
			return nil
		}
		changed := p.changes.Next()
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// shut rejects the calls and the clients in the queue.
func (p *poolState) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.queue.All() {
		p.refuseLocked(w, ErrClosing)
	}
}

// awaitIdle waits until no call is in flight. When ctx ends first, it cancels the remaining calls and waits for their
// end.
func (p *poolState) awaitIdle(ctx context.Context) error {
	idle := func() bool {
		return len(p.leaving) == 0 && !slices.ContainsFunc(p.order, func(u *upstream) bool { return u.inFlight() > 0 })
	}
	if p.await(ctx, idle) == nil {
		return nil
	}
	p.mu.Lock()
	p.cancelCallsLocked(api.Errorf(api.CodeUnavailable, "the gateway shut down before the call ended"))
	p.mu.Unlock()
	_ = p.await(context.WithoutCancel(ctx), idle) // a cancelled call returns at once
	return fmt.Errorf("calls of pool %s were cancelled: %w", p.pool, ctx.Err())
}

func (p *poolState) cancelCallsLocked(reason *api.Error) {
	for _, u := range slices.Concat(p.order, p.leaving) {
		for c := range u.calls {
			c.cancel(reason)
		}
	}
}

func ended(p *process.Process) bool { return sleep.Ended(p.Done()) }

// specLocked is the newest spec seen of the pool, else the default one.
func (p *poolState) specLocked() spec.Spec {
	if p.specKnown {
		return p.spec
	}
	return spec.Default()
}

// unusedLocked reports whether the pool has no worker and no queued call or client, and records since when.
func (p *poolState) unusedLocked(now time.Time) bool {
	if len(p.order) > 0 || len(p.leaving) > 0 || p.waitingLocked() > 0 {
		p.idleSince = time.Time{}
		return false
	}
	if p.idleSince.IsZero() {
		p.idleSince = now
	}
	if p.roster.at.After(p.idleSince) {
		p.idleSince = p.roster.at
	}
	return true
}

// evict removes the state of a pool that has been unused for evictAfter, and reports whether it did. Goroutines that
// still have the state use its successor.
func (p *poolState) evict(now time.Time) bool {
	d := p.dispatcher
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.unusedLocked(now) || now.Sub(p.idleSince) < d.evictAfter {
		return false
	}
	p.evicted = true
	d.mu.Lock()
	delete(d.pools, p.pool)
	d.mu.Unlock()
	return true
}

const (
	// controlTimeout bounds one request about a lease.
	controlTimeout = 5 * time.Second
	// queueTick is the interval of ticks while calls or clients wait.
	queueTick = 20 * time.Millisecond
	// minTick is the least time between two ticks, which bounds the load of a busy queue.
	minTick = time.Millisecond
	// idleTick is the time to the next tick when nothing is due: a notify comes first.
	idleTick = time.Hour
)

// run does the work that no single call does, until the Dispatcher closes or evicts the pool: it starts what waits when
// workers open, asks who has leased them, and ends what has expired.
func (p *poolState) run() {
	life := p.dispatcher.life.Done()
	timer := time.NewTimer(minTick)
	defer timer.Stop()
	for {
		select {
		case <-life:
			return
		case <-p.wake:
		case <-timer.C:
		}
		next := p.tick()
		if p.evict(time.Now()) {
			return
		}
		timer.Reset(max(minTick, next))
		if !sleep.For(life, minTick) {
			return
		}
	}
}

// tick does what is due and returns the time to the next tick.
func (p *poolState) tick() time.Duration {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dispatcher.closing.Load() {
		return idleTick
	}
	defer p.changes.Announce()
	p.observeWaitingLocked(now) // of those that have waited since an earlier interval
	p.refreshScoresLocked(now)
	p.dispatchQueueLocked(now)
	p.makeRoomLocked(now, p.specLocked().Queue.Timeout.D()/(MaxPriority+1))
	next := p.expireQueueLocked(now)
	lost, waiting := p.dispatcher.monitor.lost.Load(), p.waitingLocked() > 0
	if waiting {
		next = min(next, queueTick)
	}
	if p.unusedLocked(now) {
		next = p.idleSince.Add(p.dispatcher.evictAfter).Sub(now)
	}
	for _, u := range p.order {
		due, in := u.questionDueLocked(now, waiting, lost)
		if due {
			u.askLocked()
		}
		next = min(next, in, u.expireLocked(now, lost), u.expireKeyLocked(now))
	}
	p.nextTick = now.Add(next)
	return next
}
