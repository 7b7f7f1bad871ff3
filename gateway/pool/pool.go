package pool

import (
	"cmp"
	"context"
	"fmt"
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
	upstreams map[string]*upstream   // by worker: its newest incarnation here
	older     []*upstream            // older incarnations that still live
	order     []*upstream            // both, sorted by worker, for a stable choice
	queue     queue                  // of calls, and of clients that wait for a lease
	peaks     queuePeaks             // of both
	rates     map[string]*rateWindow // by worker; outlives incarnations
	spec      spec.Spec              // the newest seen
	specKnown bool
	timeout   atomic.Int64 // call.timeout of spec, for readers without the lock; 0 until it is known
	ended     []endedUsage // newest last
	turn      int64        // the highest of any upstream
	checkouts int          // by clients, in progress
	elsewhere time.Time    // when a waiting client may ask a worker of another host next
	// questionAt is when a workflow may be asked next whether its lease was returned.
	questionAt time.Time
	held       map[string]*held // by session; see release.go
	heldCalls  int
	scoredAt   time.Time
	closed     error         // why no call starts any more
	freed      chan struct{} // closed when a slot may be free; nil if nothing waits for that
	nextTick   time.Time     // when run ticks next unless it is woken
	roster     roster        // as it was last read
	// Of calls that wait while no worker is on this host, see referQueueLocked.
	noWorkerSince time.Time
	referring     bool
	idleSince     time.Time // zero while the state is in use
	evicted       bool      // another state has taken this one's place, or will
}

func newPoolState(d *Dispatcher, pool string) *poolState {
	return &poolState{
		dispatcher: d, pool: pool, wake: make(chan struct{}, 1),
		stats: poolStats{calls: newHistogram(callBounds), waits: newHistogram(waitBounds),
			workers: make(map[string]*workerStats)},
		upstreams: make(map[string]*upstream), rates: make(map[string]*rateWindow),
		held:  make(map[string]*held),
		peaks: newQueuePeaks(time.Now()),
	}
}

// notify wakes run.
func (p *poolState) notify() { sleep.Wake(p.wake) }

// upstreamOf returns the upstream of a process and adds it if it is missing. It returns nil for a process that is not
// ready.
func (p *poolState) upstreamOf(proc *process.Process) *upstream {
	p.mu.Lock()
	if p.evicted {
		p.mu.Unlock()
		if p = p.dispatcher.lockPool(p.pool); p == nil {
			return nil
		}
	}
	defer p.mu.Unlock()
	return p.upstreamOfLocked(proc)
}

func (p *poolState) upstreamOfLocked(proc *process.Process) *upstream {
	// an older one counts too, perhaps after the newest has died
	if u := p.findLocked(proc.Worker(), proc.Incarnation()); u != nil {
		return u
	}
	newest := p.upstreams[proc.Worker()]
	// a second upstream of an ended process would hide the counts of the first
	if p.closed != nil || ended(proc) || proc.Info().ReadyAt.IsZero() {
		return nil
	}
	u := newUpstream(p, proc, p.turnAfterLocked(newest))
	switch {
	case newest == nil:
		p.upstreams[u.worker] = u
	case newest.incarnation > u.incarnation:
		p.older = append(p.older, u)
	default:
		p.upstreams[u.worker] = u
		p.older = append(p.older, newest) // until it is removed: its usage is still to be reported
		if ended(newest.process) {
			p.markGoneLocked(newest)
		}
	}
	p.sortLocked()
	p.notifyFreedLocked()
	p.setSpecLocked(*u.spec)
	p.setRateLocked(u.worker, u.spec.Limits.CallsPerMinute)
	p.watch(u)
	p.notify()
	return u
}

// watch takes the upstream out of service when its connection breaks or its process ends, whichever comes first. It
// needs no goroutine until then.
func (p *poolState) watch(u *upstream) {
	if u.conn != nil {
		wire.AfterDone(u.conn, func() { p.takeOut(u) })
	}
	u.process.AfterEnd(func() { p.remove(u) })
}

func (p *poolState) takeOut(u *upstream) {
	p.mu.Lock()
	if !u.gone {
		p.markGoneLocked(u)
	}
	p.mu.Unlock()
	if u.plain != nil {
		u.plain.Close()
	}
}

// remove forgets an upstream that is out of service.
func (p *poolState) remove(u *upstream) {
	p.takeOut(u)
	p.mu.Lock()
	p.removeIfIdleLocked(u)
	p.mu.Unlock()
	p.notify()
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
	u.gone = true
	u.endSuspensionLocked(u.suspendTurn)
	u.continueAllCallsLocked()
	u.endLeaseLocked("the process has ended")
	p.notify()
}

// removeIfIdleLocked removes the upstream unless calls are in flight. From then on a lease on it is rejected by its
// number alone.
func (p *poolState) removeIfIdleLocked(u *upstream) {
	if u.inFlight > 0 {
		return
	}
	if p.findLocked(u.worker, u.incarnation) == u {
		p.rememberUsageLocked(u, time.Now())
	}
	if p.upstreams[u.worker] == u {
		delete(p.upstreams, u.worker)
	}
	p.older = slices.DeleteFunc(p.older, func(o *upstream) bool { return o == u })
	p.sortLocked()
}

func (p *poolState) sortLocked() {
	p.order = p.order[:0]
	for _, u := range p.upstreams {
		p.order = append(p.order, u)
	}
	p.order = append(p.order, p.older...)
	slices.SortFunc(p.order, func(a, b *upstream) int {
		return cmp.Or(cmp.Compare(a.worker, b.worker), cmp.Compare(a.incarnation, b.incarnation))
	})
}

func (p *poolState) setSpecLocked(s spec.Spec) {
	p.spec, p.specKnown = s, true
	p.timeout.Store(int64(s.Call.Timeout))
}

// notifyFreedLocked wakes those that wait for a free slot.
func (p *poolState) notifyFreedLocked() {
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// shut rejects new calls and those in the queue.
func (p *poolState) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = ErrClosing
	for w := range p.queue.All() {
		w.index = -1 // it is in no queue
		w.started <- ErrClosing
	}
	p.queue = queue{}
	for session, h := range p.held {
		p.continueCallsLocked(session, h.by)
	}
}

// awaitIdle waits until no call is in flight. When ctx ends first, it cancels the remaining calls and waits for their
// end.
func (p *poolState) awaitIdle(ctx context.Context) error {
	p.mu.Lock()
	waits := make([]<-chan struct{}, 0, len(p.order))
	for _, u := range p.order {
		waits = append(waits, u.idleLocked())
	}
	p.mu.Unlock()
	var cut error
	for _, idle := range waits {
		select {
		case <-idle:
			continue
		case <-ctx.Done():
		}
		if cut == nil {
			cut = fmt.Errorf("calls of pool %s were cancelled: %w", p.pool, ctx.Err())
			p.mu.Lock()
			p.cancelCallsLocked(api.Errorf(api.CodeUnavailable, "the gateway shut down before the call ended"))
			p.mu.Unlock()
		}
		<-idle // a cancelled call returns at once
	}
	return cut
}

func (p *poolState) cancelCallsLocked(reason *api.Error) {
	for _, u := range p.order {
		u.poolCalls.cancel(reason)
		if u.lease != nil {
			u.lease.calls.cancel(reason)
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
