package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// desk is what the gateway knows of one pool on this host: its workers' seats and the calls that wait for one.
type desk struct {
	gateway *Gateway
	pool    string
	wake    chan struct{} // something for keep to look at
	books   books

	mu     sync.Mutex
	seats  map[string]*seat // by worker: its newest incarnation here
	former []*seat          // older incarnations that live on beside it
	order  []*seat          // both, ordered by worker, for a stable pick
	queue  *queue
	rates  map[string]*window // by worker; outlives incarnations
	spec   spec.Spec          // the newest seen
	known  bool               // spec is set
	past   []past             // newest last
	turn   int64              // the highest of any seat
	asking int                // checkouts on their way
	aimed  map[string]int     // calls that wait for this very worker
	scored time.Time          // when the seats' scores were last asked for
	shutBy error              // why no call begins any more
	freed  chan struct{}      // closed when there may be a worker to spare; nil while nobody waits for that
	looks  time.Time          // when keep looks next, if nobody stirs it
	looked time.Time          // when the roster was last asked for, and what it said
	census error
	// emptied is when the desk was first found vacant, zero while it is not; left says that it was given up for that.
	emptied time.Time
	left    bool
}

func newDesk(g *Gateway, pool string) *desk {
	return &desk{
		gateway: g, pool: pool, wake: make(chan struct{}, 1), seats: make(map[string]*seat), rates: make(map[string]*window), aimed: make(map[string]int), queue: newQueue(), books: newBooks(),
	}
}

// stir has keep look again soon.
func (d *desk) stir() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// seatOf returns the seat of a process, made where it is missing. There is none, nil, for one that is not ready while an older
// incarnation of its worker serves.
func (d *desk) seatOf(p *process.Process) *seat {
	d.mu.Lock()
	if d.left {
		d.mu.Unlock()
		if d = d.gateway.lockDesk(d.pool); d == nil {
			return nil
		}
	}
	defer d.mu.Unlock()
	return d.take(p)
}

// take is seatOf under mu.
func (d *desk) take(p *process.Process) *seat {
	if s := d.seatAt(p.Worker(), p.Incarnation()); s != nil { // the newest, or one that leaves, perhaps after the newest has died
		return s
	}
	old := d.seats[p.Worker()]
	if old != nil && old.incarnation < p.Incarnation() && !old.gone && p.Info().ReadyAt.IsZero() {
		return nil
	}
	if d.shutBy != nil || ended(p) { // a second seat of one that has ended would hide what the first one counted
		return nil
	}
	sp := p.Spec()
	s := &seat{
		desk: d, worker: p.Worker(), incarnation: p.Incarnation(), process: p, spec: sp, conn: p.Conn(), verify: make(chan struct{}, 1),
		score: 100, turn: d.turnAfter(old), account: d.open(p.Worker(), time.Now()),
	}
	s.verify <- struct{}{}
	if s.conn == nil {
		s.transport = transportTo(p)
	}
	switch {
	case old == nil:
		d.seats[s.worker] = s
	case old.incarnation > s.incarnation:
		d.former = append(d.former, s)
	default:
		d.seats[s.worker] = s
		d.former = append(d.former, old) // until it is forgotten: what it has counted is still to be told
		if ended(old.process) {
			d.lose(old)
		}
	}
	d.sort()
	d.tellFreed()
	d.spec, d.known = sp, true
	if limit := sp.Limits.CallsPerMinute; limit > 0 {
		if w := d.rates[s.worker]; w != nil {
			w.limit = limit
		} else {
			d.rates[s.worker] = newWindow(limit)
		}
	} else {
		delete(d.rates, s.worker)
	}
	d.gateway.work.Go(func() { d.watch(s) })
	return s
}

// watch takes the seat out of service when its process ends, or its connection, which is sooner.
func (d *desk) watch(s *seat) {
	var broken <-chan struct{}
	if s.conn != nil {
		broken = s.conn.Done()
	}
	select {
	case <-broken:
	case <-s.process.Done():
	case <-d.gateway.life.Done():
	}
	d.mu.Lock()
	d.lose(s)
	d.mu.Unlock()
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	select {
	case <-s.process.Done():
	case <-d.gateway.life.Done():
	}
	d.mu.Lock()
	d.forget(s)
	d.mu.Unlock()
	d.stir()
}

// lose marks the seat as gone. Its lease ended with the process, and the workflow knows that by itself.
func (d *desk) lose(s *seat) {
	s.gone = true
	s.endGrant("the process has ended")
	d.stir()
}

// forget drops the seat when no call needs it any more; a lease on it is then found ended by its number alone.
func (d *desk) forget(s *seat) {
	if s.inFlight > 0 {
		return
	}
	if d.seatAt(s.worker, s.incarnation) == s {
		d.remember(s, time.Now())
	}
	if d.seats[s.worker] == s {
		delete(d.seats, s.worker)
	}
	d.former = slices.DeleteFunc(d.former, func(f *seat) bool { return f == s })
	d.sort()
}

func (d *desk) sort() {
	d.order = d.order[:0]
	for _, s := range d.seats {
		d.order = append(d.order, s)
	}
	d.order = append(d.order, d.former...)
	slices.SortFunc(d.order, func(a, b *seat) int {
		return cmp.Or(cmp.Compare(a.worker, b.worker), cmp.Compare(a.incarnation, b.incarnation))
	})
}

// end takes a call out of flight if it still is, gives its place to the next that waits, and ends the call's context.
func (d *desk) end(f *flight, err error) {
	d.land(f, err)
	f.cancel(nil)
}

// land is end while somebody may still wait for the rest of the answer. The reader of the worker's connection calls it as soon as the
// answer is there, so that the worker has its next request before the caller of the last one runs.
func (d *desk) land(f *flight, err error) {
	now := time.Now()
	d.mu.Lock()
	if f.over {
		d.mu.Unlock()
		return
	}
	s := f.seat
	s.finish(f, err, now)
	if s.inFlight == 0 && s.gone {
		select {
		case <-s.process.Done():
			d.forget(s)
		default: // watch forgets it
		}
	}
	stir := f.grant.ours && s.inFlight == 0 && (f.grant.ended || f.grant.fatal != "" || f.grant.tired(now))
	var room [2]*waiter // for the usual one, without an allocation
	next := room[:0]
	if d.queue.Len() > 0 {
		next = d.admit(now, next)
	}
	d.tellFreed()
	d.mu.Unlock()
	for _, w := range next {
		w.hand()
	}
	if stir {
		d.stir()
	}
}

// shut refuses new calls and those that wait.
func (d *desk) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shutBy = errClosing
	for w := d.queue.Pop(); w != nil; w = d.queue.Pop() {
		w.refuse(errClosing)
	}
}

// quiet waits until no call is in flight; when ctx ends first, it cancels what is left and waits for that.
func (d *desk) quiet(ctx context.Context) error {
	d.mu.Lock()
	waits := make([]<-chan struct{}, 0, len(d.order))
	for _, s := range d.order {
		waits = append(waits, s.whenQuiet())
	}
	d.mu.Unlock()
	var cut error
	for _, done := range waits {
		select {
		case <-done:
			continue
		case <-ctx.Done():
		}
		if cut == nil {
			cut = fmt.Errorf("calls of pool %s were cut: %w", d.pool, ctx.Err())
			d.cancelAll()
		}
		<-done // a cancelled call returns at once
	}
	return cut
}

func (d *desk) cancelAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.order {
		if s.grant == nil {
			continue
		}
		for f := range s.grant.flights {
			f.cancel(api.Errorf(api.CodeUnavailable, "this gateway is shutting down and had no more time for the call"))
		}
	}
}
