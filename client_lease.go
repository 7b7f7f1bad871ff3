package tempool

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/serviceerror"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// CheckoutOptions say who wants a lease and for how long.
type CheckoutOptions struct {
	Holder  string        // required
	Session string        // optional
	TTL     time.Duration // 0: the spec's lease.ttl
	Slot    *int          // a particular worker; nil takes any
	// RequestID makes the checkout idempotent for one worker; empty makes one up.
	RequestID string
	// Wait bounds how long Checkout waits for a worker to come free; 0: until its context ends.
	Wait time.Duration
	// NoRenew has Checkout leave the renewing to its caller, as for a lease that is to outlive this program.
	NoRenew bool
}

// Retries of a checkout that finds no free worker.
const (
	checkoutBackoff    = 20 * time.Millisecond
	checkoutMaxBackoff = time.Second
	checkoutOverrun    = 2 * time.Second
)

// CheckoutOnce asks one worker for a lease, once. A refusal is an Error whose code says why. The lease is not renewed in the
// background.
func (p *Pool) CheckoutOnce(ctx context.Context, slot int, o CheckoutOptions) (*Lease, error) {
	request := api.CheckoutRequest{RequestID: cmp.Or(o.RequestID, uuid.NewString()), Holder: o.Holder, Session: o.Session, TTLMS: o.TTL.Milliseconds()}
	asked := time.Now()
	var lease api.Lease
	err := p.client.update(ctx, api.WorkerWorkflowID(p.name, slot), api.UpdateCheckout, request.RequestID, request, &lease, "check out "+api.WorkerName(p.name, slot))
	if err != nil {
		return nil, err
	}
	return p.client.bind(lease, asked), nil
}

// TryCheckout asks each worker that may be free, once; CodeNoWorkers, wrapping the last refusal, means that none was. The lease is
// not renewed in the background. A client of given gateways has one of them look for a worker, which cannot be a particular one.
func (p *Pool) TryCheckout(ctx context.Context, o CheckoutOptions) (*Lease, error) {
	if p.client.fixed != nil {
		return p.checkoutByGateway(ctx, o)
	}
	if o.Slot != nil {
		return p.CheckoutOnce(ctx, *o.Slot, o)
	}
	status, err := p.Running(ctx)
	if err != nil {
		return nil, err
	}
	refusal := error(api.Errorf(api.CodeNoWorkers, "pool %s has no worker in service (0 of %d)", p.name, status.Size).After(time.Second))
	for _, entry := range candidates(status.Workers) {
		lease, err := p.CheckoutOnce(ctx, entry.Slot, o)
		if err == nil {
			return lease, nil
		}
		if !api.CodeOf(err).Retryable() && api.CodeOf(err) != api.CodeWorkerNotFound {
			return nil, err
		}
		refusal = api.Errorf(api.CodeNoWorkers, "no worker of pool %s is free: %w", p.name, err).After(checkoutBackoff)
	}
	return nil, refusal
}

// candidates are the workers in service, the best first: those that were free when the pool last heard of them, in random order so
// that many clients do not ask the same one, then the others.
func candidates(roster []api.RosterEntry) []api.RosterEntry {
	serving := slices.DeleteFunc(slices.Clone(roster), func(e api.RosterEntry) bool { return e.Gone || !inService(e.State) })
	rand.Shuffle(len(serving), func(i, j int) { serving[i], serving[j] = serving[j], serving[i] })
	slices.SortStableFunc(serving, func(a, b api.RosterEntry) int { return cmp.Compare(rank(a), rank(b)) })
	return serving
}

// rank orders workers by how likely they are to be free.
func rank(e api.RosterEntry) int {
	switch {
	case e.Leaving:
		return 2
	case e.State == lifecycle.Busy:
		return 1
	}
	return 0
}

// checkoutByGateway has the given gateways look for a free worker, each once.
func (p *Pool) checkoutByGateway(ctx context.Context, o CheckoutOptions) (*Lease, error) {
	if o.Slot != nil {
		return nil, api.Errorf(api.CodeInvalid, "a gateway gives any free worker; a particular one takes a client that asks Temporal")
	}
	request := map[string]any{"holder": o.Holder, "session": o.Session, "ttl_ms": o.TTL.Milliseconds(), "request_id": cmp.Or(o.RequestID, uuid.NewString())}
	passed := map[string]bool{}
	var refusal error
	for {
		l, err := p.client.fixed.acquire(ctx, passed)
		if err != nil || l == nil {
			return nil, cmp.Or(refusal, err)
		}
		asked := time.Now()
		var lease api.Lease
		err = p.client.control(ctx, l.endpoint, http.MethodPost, "/v1/pools/"+url.PathEscape(p.name)+"/leases", request, &lease)
		p.client.fixed.release(l, err)
		if err == nil {
			// What a gateway calls itself may lead nowhere from here; if another host's is meant, the first call is told so.
			taken := p.client.bind(lease, asked)
			taken.state.moveTo(l.endpoint)
			return taken, nil
		}
		if !api.CodeOf(err).Retryable() {
			return nil, err
		}
		refusal, passed[l.endpoint] = err, true
	}
}

// Checkout takes a lease on any free worker, or on the one that o names, and waits for it with jittered backoff until o.Wait is over or
// ctx ends; then it is CodeQueueTimeout. The lease renews itself until it is checked in, ctx ends or the client closes, unless o.NoRenew:
// so ctx is to last for as long as the lease is needed, and o.Wait is what bounds the waiting.
func (p *Pool) Checkout(ctx context.Context, o CheckoutOptions) (*Lease, error) {
	waiting := ctx
	if o.Wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, o.Wait)
		defer cancel()
	}
	lease, err := p.awaitLease(waiting, o)
	if err == nil && !o.NoRenew {
		p.client.keepAlive(ctx, lease.state)
	}
	return lease, err
}

// awaitLease tries until it has a lease or ctx ends.
func (p *Pool) awaitLease(ctx context.Context, o CheckoutOptions) (*Lease, error) {
	// An attempt may outlast ctx a little, so that a lease granted at the last moment is given back and not lost until it expires.
	attempt, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(checkoutOverrun, cancel) })()
	wait := checkoutBackoff
	for {
		lease, err := p.TryCheckout(attempt, o)
		if err == nil && ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), lease.Checkin(attempt, api.OutcomeOK))
		}
		if err == nil || !api.CodeOf(err).Retryable() {
			return lease, err
		}
		pause := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil, api.Errorf(api.CodeQueueTimeout, "no worker of pool %s came free in time: %w", p.name, err)
		case <-pause.C:
		}
		wait = min(2*wait, checkoutMaxBackoff)
	}
}

// Renew extends a lease to ttl from now (0: the spec's lease.ttl).
func (c *Client) Renew(ctx context.Context, leaseID string, ttl time.Duration) (*Lease, error) {
	lease, err := c.extend(ctx, leaseID, ttl)
	if err != nil {
		return nil, err
	}
	return c.Adopt(lease), nil
}

func (c *Client) extend(ctx context.Context, leaseID string, ttl time.Duration) (lease api.Lease, err error) {
	ref, err := api.ParseLeaseID(leaseID)
	if err != nil {
		return lease, err
	}
	err = c.update(ctx, api.WorkerWorkflowID(ref.Pool, ref.Slot), api.UpdateRenew, uuid.NewString(), api.RenewRequest{LeaseID: leaseID, TTLMS: ttl.Milliseconds()}, &lease, "renew "+leaseID)
	return lease, err
}

// Checkin gives a lease back by a signal, the cheapest way: it returns when Temporal has the signal, not when the worker has
// acted on it. A stale lease is counted by the worker and is no error here. If this client renews the lease, it does so no longer.
func (c *Client) Checkin(ctx context.Context, request api.CheckinRequest) error {
	ref, err := api.ParseLeaseID(request.LeaseID)
	if err != nil {
		return err
	}
	c.stopRenewing(request.LeaseID)
	return c.fromTemporal(c.temporal.SignalWorkflow(ctx, api.WorkerWorkflowID(ref.Pool, ref.Slot), "", api.SignalCheckin, request), "check in "+request.LeaseID)
}

// CheckinNow gives a lease back and returns the state the worker is in then. A stale lease is counted by the worker and changes
// nothing, as with Checkin. It costs one history event more than Checkin.
func (c *Client) CheckinNow(ctx context.Context, request api.CheckinRequest) (api.CheckinResult, error) {
	ref, err := api.ParseLeaseID(request.LeaseID)
	if err != nil {
		return api.CheckinResult{}, err
	}
	c.stopRenewing(request.LeaseID)
	var result api.CheckinResult
	err = c.update(ctx, api.WorkerWorkflowID(ref.Pool, ref.Slot), api.UpdateCheckin, uuid.NewString(), request, &result, "check in "+request.LeaseID)
	return result, err
}

func notFound(err error) bool {
	var missing *serviceerror.NotFound
	return errors.As(err, &missing)
}
