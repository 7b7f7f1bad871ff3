package pool

import (
	"context"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// upstream is one ready incarnation of a worker on this host. Calls of its pool may run on it while it is open; a
// client's lease closes it to them. The fields after the first block are guarded by the lock of its pool.
type upstream struct {
	pool        *poolState
	worker      string
	incarnation int64
	process     *process.Process
	spec        *spec.Spec    // shared
	conn        *wire.Conn    // nil for protocol none
	plain       PlainUpstream // of protocol none
	verifying   chan struct{} // one token: its owner may ask the workflow whether a lease counts
	stats       *workerStats

	// What closes it, see closedLocked.
	gone      bool // the process has ended, or takes no further call
	draining  bool
	resetting bool   // until its program has dropped what the holder of an expired lease left
	fatal     string // why the program asked to be replaced
	degraded  string // why it must pass a probe first
	unsure    bool   // until its workflow says whether it is leased
	reserved  bool   // for a client whose checkout is under way
	// suspension keeps it out of service; nil if nothing does. suspended is what is known of the newest one, even after
	// its end. suspendTurn is the newest order of that kind, or of its end.
	suspension  *suspension
	suspended   *api.Suspension
	suspendTurn int64

	newest    api.LeaseRef // the newest lease seen, granted or not; an older one is fenced
	lease     *activeLease // the lease that counts, if it is known
	poolCalls callSet
	// releasing says that the sessions bound to the worker are held until this incarnation has released them, or have
	// been.
	releasing bool
	inFlight  int
	calls     callCount // of the whole incarnation
	notifyAt  int64     // the number of its calls at which notify is called, once; 0 for never
	notify    func()
	errors    callErrors
	idle      []chan struct{} // closed when no call is in flight
	turn      int64           // about the number of calls it was chosen for; equals take turns by it
	score     float64

	question question // to its workflow: has a client leased it?
	// refusals counts checkouts in a row that the worker refused to clients; no client asks it before retryAt.
	refusals int
	retryAt  time.Time
	// returning says that a checkin is on its way to the workflow, which would refuse the next client until it has it.
	returning bool
}

// callSet are the calls in flight of one kind on an incarnation: those of its pool, or those under one lease.
type callSet struct {
	calls map[*Call]struct{}
	empty []chan struct{} // closed when calls is empty
}

func (s *callSet) add(c *Call) {
	if s.calls == nil {
		s.calls = make(map[*Call]struct{})
	}
	s.calls[c] = struct{}{}
}

func (s *callSet) remove(c *Call) {
	delete(s.calls, c)
	if len(s.calls) == 0 {
		for _, empty := range s.empty {
			close(empty)
		}
		s.empty = nil
	}
}

// whenEmpty returns a channel that is closed when no call is left.
func (s *callSet) whenEmpty() <-chan struct{} {
	empty := make(chan struct{})
	if len(s.calls) == 0 {
		close(empty)
	} else {
		s.empty = append(s.empty, empty)
	}
	return empty
}

func (s *callSet) cancel(reason error) {
	for c := range s.calls {
		c.cancel(reason)
	}
}

// activeLease is a client's lease that the workflow has confirmed.
type activeLease struct {
	ref       api.LeaseRef
	lease     api.Lease
	key       lease.Key
	ttl       time.Duration
	expires   time.Time       // by this host's monotonic clock
	ended     bool            // no new call
	reason    string          // of ended
	previous  <-chan struct{} // closed when the calls from before the lease have ended; nil if there were none
	calls     callSet
	count     callCount
	requestID string // of the client's checkout, if it passed this gateway
}

func newUpstream(p *poolState, proc *process.Process, turn int64) *upstream {
	u := &upstream{
		pool: p, worker: proc.Worker(), incarnation: proc.Incarnation(), process: proc, spec: proc.SharedSpec(),
		conn: proc.Conn(), verifying: make(chan struct{}, 1),
		score: 100, turn: turn, stats: p.workerStatsLocked(proc.Worker(), time.Now()),
	}
	u.verifying <- struct{}{}
	if plain := p.dispatcher.config.Plain; u.conn == nil && plain != nil {
		u.plain = plain(proc)
	}
	return u
}

// closure is why no call of the pool starts on an incarnation.
type closure int

const (
	open closure = iota
	gone
	draining
	suspended
	resetting
	fatal
	degraded
	unsure
	reserved
	leased
	succeeds
)

// closedLocked is the strongest reason why no call of the pool starts on the incarnation, open if there is none. All
// but leased and unsure come and go with orders and reports; those two are what keeps the promise to the holder of a
// lease, that no other call runs on the process between its first call and the end of the lease.
func (u *upstream) closedLocked() closure {
	switch {
	case u.gone:
		return gone
	case u.draining:
		return draining
	case u.suspension != nil:
		return suspended
	case u.resetting:
		return resetting
	case u.fatal != "":
		return fatal
	case u.degraded != "":
		return degraded
	case u.unsure:
		return unsure
	case u.reserved:
		return reserved
	case u.lease != nil:
		return leased
	case len(u.pool.older) > 0 && u.awaitsReleaseLocked():
		return succeeds
	}
	return open
}

// awaitsReleaseLocked reports whether an older incarnation of the worker serves that keeps parts of its sessions to
// itself, which it releases when it is drained.
func (u *upstream) awaitsReleaseLocked() bool {
	for _, o := range u.pool.order {
		if o.worker == u.worker && o.incarnation < u.incarnation && !o.gone && !o.draining &&
			o.offersHook(api.HookSessionRelease) {
			return true
		}
	}
	return false
}

// openedLocked starts what waits for the worker, which may have opened.
func (u *upstream) openedLocked() {
	u.pool.dispatchQueueLocked(time.Now())
	u.pool.notifyFreedLocked()
}

// adoptLocked makes a confirmed lease the one that counts. It cancels the calls under the previous lease; calls under
// the new one wait until those have ended, and the pool's. It reports false when a newer lease has been seen, which
// fences this one.
func (u *upstream) adoptLocked(granted api.Lease, ref api.LeaseRef, expires time.Time) bool {
	if ref.Older(u.newest) || u.gone || u.pool.closed != nil {
		return false
	}
	old := u.lease
	granted.Token = "" // the holder's
	if old != nil && old.ref == ref {
		if old.ended {
			return false
		}
		if expires.After(old.expires) {
			old.lease, old.ttl, old.expires = granted, granted.TTL(), expires
		}
		u.unsure = false
		return true
	}
	u.supersedeLocked(ref, "a newer lease was granted")
	u.pool.retireOlderLocked(u)
	u.lease = &activeLease{ref: ref, lease: granted, key: lease.KeyOf(granted), ttl: granted.TTL(), expires: expires}
	u.stats.granted.Add(1)
	u.unsure, u.question = false, question{asking: u.question.asking}
	if u.busyLocked() {
		u.lease.previous = u.freeLocked(old)
	}
	return true
}

// busyLocked reports whether calls are in flight, or cancelled and not yet given up by the worker.
func (u *upstream) busyLocked() bool {
	return u.inFlight > 0 || u.conn != nil && u.conn.InFlight() > 0
}

// workerPoll is the interval at which freeLocked polls a worker for cancelled calls.
const workerPoll = time.Millisecond

// freeLocked returns a channel that is closed when no call of the pool, or under old or an earlier lease, is in flight,
// and the worker has answered the cancelled ones. No call under a new lease may reach the worker before.
func (u *upstream) freeLocked(old *activeLease) <-chan struct{} {
	free := make(chan struct{})
	waits := []<-chan struct{}{u.poolCalls.whenEmpty()}
	if old != nil {
		if old.previous != nil {
			waits = append(waits, old.previous)
		}
		waits = append(waits, old.calls.whenEmpty())
	}
	life := u.pool.dispatcher.life.Done()
	u.pool.dispatcher.work.Go(func() {
		defer close(free)
		for _, empty := range waits {
			select {
			case <-empty:
			case <-life:
				return
			}
		}
		ticker := time.NewTicker(workerPoll)
		defer ticker.Stop()
		for u.conn != nil && u.conn.InFlight() > 0 {
			select {
			case <-ticker.C:
			case <-u.conn.Done(): // a worker that answers no cancel breaks its connection
				return
			case <-life:
				return
			}
		}
	})
	return free
}

// supersedeLocked fences every lease older than ref.
func (u *upstream) supersedeLocked(ref api.LeaseRef, reason string) {
	if !u.newest.Older(ref) {
		return
	}
	u.newest = ref
	if old := u.lease; old != nil && old.ref.Older(ref) {
		u.endLeaseLocked(reason)
		old.calls.cancel(api.Errorf(api.CodeLeaseFenced, "lease %s on %s was superseded while the call ran", old.lease.ID,
			u.worker))
		u.lease = nil
	}
}

// fenceLocked fences a lease and those before it. It returns the lease if it is the one that counts, else nil, and a
// channel as freeLocked does.
func (u *upstream) fenceLocked(ref api.LeaseRef, reason string) (*activeLease, <-chan struct{}) {
	l := u.lease
	if l != nil && l.ref != ref {
		l = nil
	}
	ref.Seq++
	u.supersedeLocked(ref, reason)
	return l, u.freeLocked(l)
}

// endLeaseLocked lets no further call start under the lease that counts.
func (u *upstream) endLeaseLocked(reason string) {
	if u.lease != nil && !u.lease.ended {
		u.lease.ended, u.lease.reason = true, reason
	}
}

// forgetLeaseLocked forgets a lease that has ended and whose calls have. A later call under it is refused by its number
// alone: the workflow may not know of its end yet.
func (u *upstream) forgetLeaseLocked(ref api.LeaseRef) {
	ref.Seq++
	u.supersedeLocked(ref, "it was checked in")
	u.refusals, u.retryAt = 0, time.Time{}
}

// idleLocked returns a channel that is closed when no call is in flight.
func (u *upstream) idleLocked() <-chan struct{} {
	idle := make(chan struct{})
	if u.inFlight == 0 {
		close(idle)
	} else {
		u.idle = append(u.idle, idle)
	}
	return idle
}

// awaitIdle waits until no call is in flight. It fails if ctx ends first.
func (u *upstream) awaitIdle(ctx context.Context) error {
	u.pool.mu.Lock()
	idle := u.idleLocked()
	u.pool.mu.Unlock()
	return await(ctx, idle)
}

// await waits until done is closed. It fails if ctx ends first.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startLocked puts a call in flight, under a lease or, without one, as a call of the pool.
func (u *upstream) startLocked(c *Call, l *activeLease, now time.Time) {
	c.upstream, c.lease, c.startedAt = u, l, now
	c.setLocked().add(c)
	u.inFlight++
}

// setLocked is the set that the call is in while it is in flight.
func (c *Call) setLocked() *callSet {
	if c.lease != nil {
		return &c.lease.calls
	}
	return &c.upstream.poolCalls
}

// completeLocked removes a call from those in flight and counts it; err is its result.
func (u *upstream) completeLocked(c *Call, err error, now time.Time) {
	c.completed = true
	c.setLocked().remove(c)
	if err == nil || started(err) {
		took := now.Sub(c.startedAt)
		if c.lease != nil {
			c.lease.count.add(err != nil, took)
		}
		u.calls.add(err != nil, took)
		u.notifyCountLocked()
		u.stats.add(err != nil, took)
		u.pool.stats.calls.observe(took)
		if c.traceID != "" {
			u.pool.stats.calls.illustrate(Exemplar{c.traceID, took, now})
		}
	}
	if reason := fatalReason(err); reason != "" {
		u.fatal = reason
	}
	u.countErrorLocked(c, err, now)
	if u.inFlight--; u.inFlight == 0 {
		for _, idle := range u.idle {
			close(idle)
		}
		u.idle = nil
		u.reportFatalLocked()
	}
}

// reportFatalLocked has a worker replaced whose program asked for it, when its calls have ended. A client's lease says
// so with its checkin.
func (u *upstream) reportFatalLocked() {
	if u.fatal != "" && u.lease == nil && u.inFlight == 0 && !u.errors.replaced {
		u.errors.replaced = true
		u.reportLocked(u.fatal, true)
	}
}

// refusedLocked reports whether the call has failed with err because its process stops on its own, and takes no further
// call. A process that has asked to be replaced continues until its worker has it replaced.
func (c *Call) refusedLocked(err error) bool {
	u := c.upstream
	return err != nil && u.conn != nil && u.fatal == "" &&
		(errors.Is(err, wire.ErrNotBegun) || !wire.Writable(u.conn))
}

// checkinLocked is the request that returns the lease with its usage. If the worker asks to be replaced, that overrides
// a better outcome.
func (u *upstream) checkinLocked(l *activeLease, outcome api.Outcome, reason string) api.CheckinRequest {
	if u.fatal != "" && outcome != api.OutcomeClose {
		outcome, reason = api.OutcomeClose, u.fatal
	}
	return api.CheckinRequest{LeaseID: l.lease.ID, Outcome: outcome, Error: reason, Usage: l.count.usage()}
}
