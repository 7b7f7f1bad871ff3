package tempool

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/serviceerror"

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
}

// Retries of a checkout that finds no free worker.
const (
	checkoutBackoff    = 20 * time.Millisecond
	checkoutMaxBackoff = time.Second
	checkoutOverrun    = 2 * time.Second
)

// CheckoutOnce asks one worker for a lease, once. A refusal is an Error whose code says why.
func (p *Pool) CheckoutOnce(ctx context.Context, slot int, o CheckoutOptions) (*Lease, error) {
	request := CheckoutRequest{RequestID: cmp.Or(o.RequestID, uuid.NewString()), Holder: o.Holder, Session: o.Session, TTLMS: o.TTL.Milliseconds()}
	var lease Lease
	err := p.client.update(ctx, WorkerWorkflowID(p.name, slot), UpdateCheckout, request.RequestID, request, &lease, "check out "+WorkerName(p.name, slot))
	if err != nil {
		return nil, err
	}
	return &lease, nil
}

// TryCheckout asks each worker that may be free, once; CodeNoWorkers, wrapping the last refusal, means that none was.
func (p *Pool) TryCheckout(ctx context.Context, o CheckoutOptions) (*Lease, error) {
	if o.Slot != nil {
		return p.CheckoutOnce(ctx, *o.Slot, o)
	}
	status, err := p.Status(ctx)
	if err != nil {
		return nil, err
	}
	candidates := slices.DeleteFunc(slices.Clone(status.Workers), func(e RosterEntry) bool {
		return e.Gone || (e.State != lifecycle.Ready && e.State != lifecycle.Busy)
	})
	rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	refusal := error(Errorf(CodeNoWorkers, "pool %s has no worker in service (0 of %d)", p.name, status.Size).After(time.Second))
	for _, entry := range candidates {
		lease, err := p.CheckoutOnce(ctx, entry.Slot, o)
		if err == nil {
			return lease, nil
		}
		if !CodeOf(err).Retryable() && CodeOf(err) != CodeWorkerNotFound {
			return nil, err
		}
		refusal = Errorf(CodeNoWorkers, "no worker of pool %s is free: %w", p.name, err).After(checkoutBackoff)
	}
	return nil, refusal
}

// Checkout tries until it has a lease or ctx ends, with jittered backoff.
func (p *Pool) Checkout(ctx context.Context, o CheckoutOptions) (*Lease, error) {
	// An attempt may outlast ctx a little, so that a lease granted at the last moment is given back and not lost until it expires.
	attempt, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(checkoutOverrun, cancel) })()
	wait := checkoutBackoff
	for {
		lease, err := p.TryCheckout(attempt, o)
		if err == nil && ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), p.client.Checkin(attempt, CheckinRequest{LeaseID: lease.ID}))
		}
		if err == nil || !CodeOf(err).Retryable() {
			return lease, err
		}
		pause := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil, Errorf(CodeQueueTimeout, "no worker of pool %s came free in time: %w", p.name, err)
		case <-pause.C:
		}
		wait = min(2*wait, checkoutMaxBackoff)
	}
}

// Renew extends a lease to ttl from now (0: the spec's lease.ttl).
func (c *Client) Renew(ctx context.Context, leaseID string, ttl time.Duration) (*Lease, error) {
	ref, err := ParseLeaseID(leaseID)
	if err != nil {
		return nil, err
	}
	var lease Lease
	err = c.update(ctx, WorkerWorkflowID(ref.Pool, ref.Slot), UpdateRenew, uuid.NewString(), RenewRequest{leaseID, ttl.Milliseconds()}, &lease, "renew "+leaseID)
	if err != nil {
		return nil, err
	}
	return &lease, nil
}

// Checkin gives a lease back by a signal, the cheapest way: it returns when Temporal has the signal, not when the worker has
// acted on it. A stale lease is counted by the worker and is no error here.
func (c *Client) Checkin(ctx context.Context, request CheckinRequest) error {
	ref, err := ParseLeaseID(request.LeaseID)
	if err != nil {
		return err
	}
	return c.understand(c.temporal.SignalWorkflow(ctx, WorkerWorkflowID(ref.Pool, ref.Slot), "", SignalCheckin, request), "check in "+request.LeaseID)
}

// CheckinNow gives a lease back and returns the state the worker is in then. A stale lease is counted by the worker and changes
// nothing, as with Checkin. It costs one history event more than Checkin.
func (c *Client) CheckinNow(ctx context.Context, request CheckinRequest) (CheckinResult, error) {
	ref, err := ParseLeaseID(request.LeaseID)
	if err != nil {
		return CheckinResult{}, err
	}
	var result CheckinResult
	err = c.update(ctx, WorkerWorkflowID(ref.Pool, ref.Slot), UpdateCheckin, uuid.NewString(), request, &result, "check in "+request.LeaseID)
	return result, err
}

func notFound(err error) bool {
	var missing *serviceerror.NotFound
	return errors.As(err, &missing)
}
