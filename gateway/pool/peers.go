package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Other hosts have workers of the same pools. A call that waits here may go to one of them: it leaves the queue, so
// that no worker of this host starts it, and comes back to its place if the other host has not taken it.

// Peers are the gateways of other hosts. Its methods but Serving must not block.
type Peers interface {
	// Waits says, under a lock, that a call or a client of the pool waits: Send sends one that may go to another host,
	// and Refer refuses those that must.
	Waits(pool string)
	// Reaches reports whether a gateway may be reached.
	Reaches(api.Peer) bool
	// Serving are the hosts that have workers of the pool in service, without this one. It may wait for the roster.
	Serving(ctx context.Context, pool string) []Place
}

// Reaches reports whether the gateway of another host may be reached.
func (d *Dispatcher) Reaches(to api.Peer) bool {
	return d.config.Peers != nil && d.config.Peers.Reaches(to)
}

// reachesAny reports whether the error refers to another gateway that may be reached.
func (d *Dispatcher) reachesAny(err error) bool {
	other, isOther := errors.AsType[api.OtherHostError](err)
	return isOther && d.config.Peers != nil && slices.ContainsFunc(other.Gateways, d.config.Peers.Reaches)
}

// Place is where a call or a client may go on another host.
type Place struct {
	api.Peer
	// Worker is one there in service, for LeaseByTemporal.
	Worker string
	// Settled must be called once: when the other gateway has taken the call or the client, or has refused it.
	Settled func(taken bool)
}

// ErrNotTaken is wrapped by the error of a Request's Forward if no worker can have seen the call, which then waits
// here again.
var ErrNotTaken = errors.New("the other host did not take the call")

// ErrStays is the error of a CheckoutRequest's Forward if the client can go nowhere any more: it waits here without
// keeping those behind it from leaving.
var ErrStays = errors.New("the client stays here")

// errTaken is the result of a call that another host has served.
var errTaken = errors.New("another host has served the call")

// sentToPeer is why a call or a client has left the queue.
type sentToPeer struct{ to Place }

func (*sentToPeer) Error() string { return "it goes to another host" }

// Guest is a call or a client that the gateway of another host has forwarded, and that has waited there.
type Guest struct {
	// Patience is how long it may wait here; 0 for not at all.
	Patience time.Duration
	// Waited is how long it has waited, so that it stands in the queue as if it had waited here.
	Waited time.Duration
}

// AsGuest is the target for a call of another gateway. If no worker is free within g.Patience, it fails unstarted, with
// CodeBusy or CodeQueueTimeout.
func (t Target) AsGuest(g Guest) Target {
	t.guest = &g
	return t
}

// Leavers are those who may leave the queue for another host.
type Leavers int

const (
	CallsAndClients Leavers = iota
	Calls
	Clients // none while Temporal does not answer, which grants their leases
)

// Send sends the first in the queue of a pool that may leave it to a place: its Forward gets that. Send reports false
// if none waits.
func (d *Dispatcher) Send(pool string, who Leavers, to Place) bool {
	if who == Clients && d.monitor.lost.Load() {
		return false
	}
	return d.leaver(pool, who, func(p *poolState, w *waiter) { p.refuseLocked(w, &sentToPeer{to}) })
}

// MayLeave reports whether a call or a client of the pool waits that may go to another host.
func (d *Dispatcher) MayLeave(pool string) bool {
	return d.leaver(pool, CallsAndClients, func(*poolState, *waiter) {})
}

// leaver calls use with the first in the queue of a pool that may leave it, and reports whether there is one.
func (d *Dispatcher) leaver(pool string, who Leavers, use func(*poolState, *waiter)) bool {
	p := d.knownPool(pool)
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.queue.Leaver(who)
	if w == nil || d.closing.Load() {
		return false
	}
	use(p, w)
	return true
}

// Refer refuses the queued calls of a pool none of whose workers is here, if the roster shows that they have started on
// other hosts, unless the calls may go there: their callers may reach the gateways that the error names. Clients that
// may leave wait on, since Temporal may grant them a lease there. It reports whether somebody still waits.
func (d *Dispatcher) Refer(roster api.PoolStatus) (waits bool) {
	p, err := d.knownPool(roster.Pool), poolAvailability(roster, d.config.HostID)
	if p == nil {
		return false
	}
	_, other := errors.AsType[api.OtherHostError](err)
	refuses := other && !p.hasWorker("")
	reached := refuses && d.reachesAny(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if refuses {
		for _, w := range p.queue.All() {
			if w.forward == nil || w.call != nil && !reached {
				p.refuseLocked(w, err)
			}
		}
	}
	return p.waitingLocked() > 0
}

// homeTimeout bounds the wait for the roster that says which host is a key's home.
const homeTimeout = time.Second

// home is the host that calls and clients of a key go to first, whatever gateway they come to: that with the highest
// hash of key and host among those with workers of the pool in service. It is nil for this host, for a key that has a
// process here, and while Temporal does not answer.
func (p *poolState) home(ctx context.Context, key string, headers map[string]string) *Place {
	d := p.dispatcher
	if key == "" || d.config.Peers == nil || d.monitor.lost.Load() {
		return nil
	}
	p.mu.Lock()
	identity, err := p.identifyLocked(key, headers)
	stays := err != nil || p.spec.Isolation.By != spec.IsolateKey || p.boundLocked(identity) > 0
	p.mu.Unlock()
	if stays {
		return nil
	}
	var home *Place
	highest := ""
	if p.hasWorker("") {
		highest = hashKey(key + d.config.HostID)
	}
	ctx, cancel := context.WithTimeout(ctx, homeTimeout)
	defer cancel()
	for _, to := range d.config.Peers.Serving(ctx, p.pool) {
		if hash := hashKey(key + to.Host); hash > highest && d.config.Peers.Reaches(to.Peer) {
			home, highest = &to, hash
		}
	}
	return home
}

// LeaseHost returns an api.OtherHostError if the process of a lease is on another host.
func (d *Dispatcher) LeaseHost(ctx context.Context, id string) error {
	ref, err := api.ParseLeaseID(id)
	if err != nil || d.upstreamFor(ref) != nil {
		return nil
	}
	return d.verifier.Explain(ctx, id, ref, d.config.HostID)
}

// HasWorkers reports whether a worker of the pool lives on this host.
func (d *Dispatcher) HasWorkers(pool string) bool {
	p := d.knownPool(pool)
	return p != nil && p.hasWorker("")
}

// sendTo sends a call to another host. It returns nil if the call must be tried here.
func (c *Call) sendTo(to Place) error {
	err := c.forward(c.ctx, to)
	switch {
	case err == nil:
		return errTaken
	case errors.Is(err, ErrNotTaken):
		if c.ctx.Err() != nil {
			return c.cause()
		}
		return nil
	}
	return err
}
