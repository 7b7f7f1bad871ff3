package gateway

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// place puts a call of a pool in flight on a worker leased by the gateway, at once if one has room, else through the queue.
// Refusals: queue_full, queue_timeout, rate_limited, no_workers, pool_not_found, unavailable.
func (g *Gateway) place(pool string, f *flight, session string, priority int) error {
	if priority < MinPriority || priority > MaxPriority {
		return api.Errorf(api.CodeInvalid, "priority is %d; it must be from %d to %d, and %d is the default", priority, MinPriority, MaxPriority, DefaultPriority)
	}
	now := time.Now()
	if g.contact.fenced(now) {
		return errFenced(g.contact.silence(now))
	}
	d := g.knownDesk(pool)
	if d == nil || !d.staffed() {
		var err error
		if d, err = g.staff(f.ctx, pool); err != nil {
			d.refuse(err)
			return err
		}
	}
	preferred := ""
	if session != "" && g.config.Affinity != nil {
		preferred, _ = g.config.Affinity.Lookup(pool, session)
	}
	err := d.join(f, preferred, priority)
	d.refuse(err)
	if err == nil && session != "" && g.config.Affinity != nil {
		g.config.Affinity.Follow(pool, session, preferred, f.seat.worker)
	}
	return err
}

// staffed reports whether the pool has a living worker here.
func (d *desk) staffed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.order, func(s *seat) bool { return !s.gone })
}

// join begins the call or waits in the queue until it can begin.
func (d *desk) join(f *flight, preferred string, priority int) error {
	now := time.Now()
	d.mu.Lock()
	if d.left {
		d.mu.Unlock()
		if d = d.gateway.lockDesk(d.pool); d == nil {
			return errClosing
		}
	}
	if d.shutBy != nil {
		d.mu.Unlock()
		return d.shutBy
	}
	if d.queue.Len() == 0 {
		if s := d.pick(preferred, now); s != nil {
			err := d.spend(s, now)
			if err == nil {
				s.begin(f, now)
				f.entered()
			}
			d.mu.Unlock()
			return err
		}
	}
	if err := d.exhausted(now); err != nil {
		d.mu.Unlock()
		return err
	}
	limits := d.spec.Queue
	if d.queue.Len() >= limits.Size {
		d.mu.Unlock()
		return api.Errorf(api.CodeQueueFull, "%d calls of pool %s wait already (queue.size)", limits.Size, d.pool).After(time.Second)
	}
	w := newWaiter(f, preferred, priority)
	d.queue.Push(w)
	f.entered()
	wanted := d.wanted(now)
	d.mu.Unlock()
	if wanted {
		d.stir()
	}
	return d.await(w, limits, now)
}

// await waits for a queued call to begin.
func (d *desk) await(w *waiter, limits spec.Queue, queued time.Time) (failure error) {
	defer func() {
		over := time.Now()
		if failure == nil { // its answer may be there already
			over = w.flight.began
		}
		d.books.waits.observe(over.Sub(queued))
		w.recycle()
	}()
	w.timer.Reset(limits.Timeout.D())
	var why error
	select {
	case err := <-w.placed:
		return err
	case w.flight.news = <-w.flight.events():
		return nil
	case <-w.flight.ctx.Done():
		why = context.Cause(w.flight.ctx)
	case <-w.timer.C:
		cause := ""
		if d.gateway.contact.lost.Load() {
			cause = "; Temporal does not answer, so that no worker can be leased beyond those the gateway holds"
		}
		why = api.Errorf(api.CodeQueueTimeout, "no worker of pool %s came free within %s (queue.timeout)%s", d.pool, limits.Timeout, cause).After(time.Second)
	}
	d.mu.Lock()
	left := d.queue.Remove(w)
	d.mu.Unlock()
	if left {
		return why
	}
	if w.flight.call != nil && !w.flight.call.Withdraw() {
		return nil // it is on its way: its own end will tell
	}
	err := <-w.placed
	if err == nil { // it began in the moment it was given up
		d.end(w.flight, errNotSent(why))
		return why
	}
	return err
}

// admit begins the calls that wait while there is room, under mu, and appends them to admitted. The caller hands them over without mu.
func (d *desk) admit(now time.Time, admitted []*waiter) []*waiter {
	if d.gateway.contact.fenced(now) {
		return admitted
	}
	for w := d.queue.Peek(); w != nil; w = d.queue.Peek() {
		s := d.pick(w.session, now)
		if s == nil || d.spend(s, now) != nil {
			break
		}
		d.queue.Pop()
		s.begin(w.flight, now)
		admitted = append(admitted, w)
	}
	return admitted
}

// dispatch is admit for those who hold mu for longer: the callers send their requests themselves.
func (d *desk) dispatch(now time.Time) {
	for _, w := range d.admit(now, nil) {
		w.placed <- nil
	}
}

// hand sends the request of a call that has begun, or wakes its caller to do so.
func (w *waiter) hand() {
	if call := w.flight.call; call != nil && call.Begin(w.flight.seat.conn) {
		return
	}
	w.placed <- nil
}

// discover seats the pool's processes of this host.
func (g *Gateway) discover(pool string) (d *desk, found bool) {
	for _, p := range g.config.Processes.List() {
		owner, _, _ := strings.Cut(p.Worker(), "/")
		if owner != pool || ended(p) {
			continue
		}
		if d == nil {
			if d = g.desk(pool); d == nil {
				return nil, false
			}
		}
		found = d.seatOf(p) != nil || found
	}
	return d, found
}

func ended(p *process.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// rosterFresh is how long the answer of a pool that has no worker here counts.
const rosterFresh = time.Second

// staff finds the desk of a pool none of whose workers has a seat. If none lives here, it asks the pool whether one is to come.
func (g *Gateway) staff(ctx context.Context, pool string) (*desk, error) {
	if !api.ValidPoolName(pool) {
		return nil, api.Errorf(api.CodePoolNotFound, "%q names no pool; a name is 1 to 63 of a-z, 0-9, '-' and '_'", pool)
	}
	if d, found := g.discover(pool); found {
		return d, nil
	}
	d := g.knownDesk(pool)
	if d != nil {
		d.mu.Lock()
		fresh, census := time.Since(d.looked) < rosterFresh, d.census
		d.mu.Unlock()
		if fresh {
			return d, census
		}
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	status, err := g.config.Control.Status(ctx, pool)
	switch {
	case errors.Is(err, api.ErrPoolNotFound):
		return nil, err
	case err != nil && d != nil && d.hasSpec(): // Temporal is away: wait for a worker all the same
		return d, nil
	case err != nil:
		return nil, api.Errorf(api.CodeUnavailable, "whether there is a pool %s cannot be found out now: %w", pool, err).After(time.Second)
	}
	if d = g.lockDesk(pool); d == nil {
		return nil, errClosing
	}
	defer d.mu.Unlock()
	if !d.known {
		d.spec, d.known = status.Spec, true
	}
	d.looked, d.census = time.Now(), outlook(status, g.config.HostID)
	return d, d.census
}

func (d *desk) hasSpec() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known
}

// outlook is nil when a worker may come to life on this host soon, else why none will, and who serves the pool instead.
func outlook(status api.PoolStatus, hostID string) error {
	var peers []Peer
	serving := map[Peer]int{}
	for _, w := range status.Workers {
		peer := Peer{w.Host, w.Endpoint}
		switch {
		case w.Gone || w.Leaving || w.Resting:
			continue
		case w.Host == hostID, w.Host == "", !w.State.Live():
			return nil
		case !slices.Contains(peers, peer):
			peers = append(peers, peer)
		}
		if w.State == lifecycle.Ready || w.State == lifecycle.Busy {
			serving[peer]++
		}
	}
	if len(peers) == 0 {
		return api.Errorf(api.CodeNoWorkers, "no worker of pool %s is in service or about to be (0 of %d); look at ctl ps %s", status.Pool, status.Size, status.Pool).After(time.Second)
	}
	var hosts []string
	for _, peer := range peers {
		if !slices.Contains(hosts, peer.Host) {
			hosts = append(hosts, peer.Host)
		}
	}
	peers = slices.DeleteFunc(peers, func(p Peer) bool { return p.Endpoint == "" }) // of a worker that has no process yet
	slices.SortStableFunc(peers, func(a, b Peer) int { return cmp.Compare(serving[b], serving[a]) })
	return elsewhere{gateways: peers, coded: api.Errorf(api.CodeNoWorkers,
		"all workers of pool %s are on other hosts (%s); call their gateway, or take a lease and use its endpoint", status.Pool, strings.Join(hosts, ", ")).After(time.Second)}
}
