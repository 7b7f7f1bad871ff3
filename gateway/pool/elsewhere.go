package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
)

// Other hosts have workers of the same pools. A call that waits here may go to one of them: it leaves the queue, so
// that no worker of this host starts it, and comes back to its place if the other host has not taken it.

// Elsewhere are the gateways of other hosts. Its methods must not block.
type Elsewhere interface {
	// Waits says, under a lock, that a call of the pool waits which may go to another host: SendElsewhere sends it.
	Waits(pool string)
	// Reaches reports whether a gateway may be reached.
	Reaches(api.Peer) bool
}

// reachesAny reports whether the error refers to another gateway that may be reached.
func (d *Dispatcher) reachesAny(err error) bool {
	other, elsewhere := errors.AsType[api.OtherHostError](err)
	return elsewhere && d.config.Elsewhere != nil && slices.ContainsFunc(other.Gateways, d.config.Elsewhere.Reaches)
}

// Place is where a call may go on another host.
type Place struct {
	api.Peer
	// Settled must be called once: when the other gateway has started the call (taken) or has refused it.
	Settled func(taken bool)
}

// ErrNotTaken is wrapped by the error of a Request's Elsewhere if no worker can have seen the call, which then waits
// here again.
var ErrNotTaken = errors.New("the other host did not take the call")

// errTaken is the result of a call that another host has served.
var errTaken = errors.New("another host has served the call")

// sentElsewhere is why a call has left the queue.
type sentElsewhere struct{ to Place }

func (*sentElsewhere) Error() string { return "the call goes to another host" }

// Guest is a call that the gateway of another host has forwarded, and that has waited there.
type Guest struct {
	// Patience is how long the call may wait here; 0 for not at all.
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

// SendElsewhere sends the first queued call of a pool that may leave its queue to a place: the Elsewhere of its Request
// gets it. It reports false if no such call waits.
func (d *Dispatcher) SendElsewhere(pool string, to Place) bool {
	p := d.knownPool(pool)
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.leaverLocked()
	if w == nil || p.closed != nil {
		return false
	}
	p.queue.Remove(w)
	w.started <- &sentElsewhere{to}
	return true
}

// MayLeave reports whether a call of the pool waits that may go to another host.
func (d *Dispatcher) MayLeave(pool string) bool {
	p := d.knownPool(pool)
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed == nil && p.leaverLocked() != nil
}

// leaverLocked is the first call in the queue that may go to another host, nil if there is none.
func (p *poolState) leaverLocked() *waiter {
	if w := p.queue.Peek(); w == nil || w.call.elsewhere != nil {
		return w
	}
	var first *waiter
	for _, w := range p.queue.heap { // behind calls that may not leave
		if w.call.elsewhere != nil && (first == nil || w.before(first)) {
			first = w
		}
	}
	return first
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

// goesElsewhere sends a call elsewhere whose wait has ended with err. It returns nil if the call must be tried again
// here, and err if it was not sent.
func (c *Call) goesElsewhere(t *Target, err error) error {
	sent, _ := err.(*sentElsewhere) // it is never wrapped
	if sent == nil {
		return err
	}
	t.arrived = c.arrived
	err = c.elsewhere(c.ctx, sent.to)
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

// admitGuest fails for a guest that must not wait here.
func (t *Target) admitGuest(pool string) error {
	if t.guest != nil && t.guest.Patience <= 0 {
		return api.Errorf(api.CodeBusy, "no worker of pool %s is free on this host", pool).After(waitHint)
	}
	return nil
}
