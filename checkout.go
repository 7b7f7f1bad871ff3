package tempool

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/lifecycle"
)

const (
	checkoutMinBackoff = 20 * time.Millisecond
	checkoutMaxBackoff = 2 * time.Second
	// maxDirectAttempts bounds how many workers Checkout asks by Temporal before it waits.
	maxDirectAttempts = 3
	// avoidGateways is how long checkouts of a pool ask no gateway after none of them could be.
	avoidGateways = 30 * time.Second
)

// Checkout takes a lease on a free worker, or on the worker o.Slot. If none is free, it waits until o.Wait or ctx ends,
// then it fails with CodeQueueTimeout: in the line of a gateway of the pool, first come first served, or, if it reaches
// none, by asking one worker at intervals. The client renews the lease in the background until its checkin, the end of
// ctx or Close, unless o.NoRenew: so ctx must last as long as the lease is needed, and o.Wait bounds the waiting.
func (p *Pool) Checkout(ctx context.Context, o CheckoutOptions) (*Lease, error) {
	o.Token = cmp.Or(o.Token, api.NewLeaseToken()) // the same for each attempt
	waiting := ctx
	if o.Wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, o.Wait)
		defer cancel()
	}
	o.RequestID = cmp.Or(o.RequestID, uuid.NewString()) // a repeated attempt must not take a second lease
	lease, err := p.awaitLease(waiting, o)
	if err == nil && !o.NoRenew {
		lease.state.keepRenewed(ctx)
	}
	return lease, err
}

// awaitLease tries to check out until it succeeds or ctx ends.
func (p *Pool) awaitLease(ctx context.Context, o CheckoutOptions) (*Lease, error) {
	// An attempt may outlast ctx a little: a lease granted at the last moment is then checked in instead of blocking its
	// worker until it expires.
	attempt, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(checkoutOverrun, cancel) })()
	timedOut := func(last error) error {
		return api.Errorf(api.CodeQueueTimeout, "timed out waiting for a free worker of pool %s: %w", p.name, last)
	}
	backoff := checkoutMinBackoff
	for first := true; ; first = false {
		lease, err := p.tryOrWait(ctx, attempt, o, first)
		if err == nil && ctx.Err() != nil {
			return nil, timedOut(errors.Join(context.Cause(ctx), lease.Checkin(attempt, api.OutcomeOK)))
		}
		if err == nil || !api.CodeOf(err).Retryable() && attempt.Err() == nil {
			return lease, err
		}
		if !sleep.For(ctx.Done(), backoff/2+rand.N(backoff)) {
			return nil, timedOut(err)
		}
		backoff = min(2*backoff, checkoutMaxBackoff)
	}
}

// tryOrWait asks for a lease: at first some workers once, then in the line of a gateway until ctx ends, or one worker
// where no gateway can be asked.
func (p *Pool) tryOrWait(ctx, attempt context.Context, o CheckoutOptions, first bool) (*Lease, error) {
	end := &waitEnd{ctx}
	switch {
	case p.client.fixed != nil:
		return p.checkoutByGateway(attempt, end, p.client.fixed, o)
	case o.Slot != nil:
		return p.CheckoutOnce(attempt, *o.Slot, o)
	case first:
		return p.tryWorkers(attempt, end, o, maxDirectAttempts)
	}
	if p.mayAskGateways() {
		lease, err := p.checkoutByGateway(attempt, end, p.balancer(), o)
		if err == nil || ctx.Err() != nil || waited(err) {
			return lease, err
		}
		p.avoidGateways() // not reached, or without the right to take leases there
	}
	return p.tryWorkers(attempt, end, o, 1)
}

func (p *Pool) mayAskGateways() bool {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	return !time.Now().Before(p.client.noGateway[p.name])
}

func (p *Pool) avoidGateways() {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	p.client.noGateway[p.name] = time.Now().Add(avoidGateways)
}

// waited reports whether a gateway took part in the wait and found no worker.
func waited(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeQueueTimeout, api.CodeQueueFull, api.CodeNoWorkers, api.CodeBusy:
		return true
	}
	return false
}

// TryCheckout tries each worker that may be free, once. CodeNoWorkers, which wraps the last refusal, means that none
// was free. The client does not renew the lease in the background. A client with Options.Gateways leaves the choice to
// a gateway and cannot name a slot.
func (p *Pool) TryCheckout(ctx context.Context, o CheckoutOptions) (*Lease, error) {
	if p.client.fixed != nil {
		return p.checkoutByGateway(ctx, nil, p.client.fixed, o)
	}
	if o.Slot != nil {
		return p.CheckoutOnce(ctx, *o.Slot, o)
	}
	return p.tryWorkers(ctx, nil, o, math.MaxInt)
}

// tryWorkers tries workers that may be free, most of them in all. Of a pool that has none because nobody needed one, a
// caller that waits first gets one started.
func (p *Pool) tryWorkers(ctx context.Context, end *waitEnd, o CheckoutOptions, most int) (*Lease, error) {
	status, err := p.Running(ctx)
	if err == nil && end != nil && p.awaitStart(end, status) {
		status, err = p.Running(ctx)
	}
	if err != nil {
		return nil, err
	}
	refusal := error(api.Errorf(api.CodeNoWorkers, "pool %s has no worker in service (0 of %d)", p.name,
		status.Size).After(time.Second))
	workers := candidates(status.Workers)
	for _, entry := range workers[:min(most, len(workers))] {
		lease, err := p.CheckoutOnce(ctx, entry.Slot, o)
		if err == nil {
			return lease, nil
		}
		if !api.CodeOf(err).Retryable() && api.CodeOf(err) != api.CodeWorkerNotFound {
			return nil, err
		}
		refusal = api.Errorf(api.CodeNoWorkers, "no worker of pool %s is free: %w", p.name, err).After(checkoutMinBackoff)
	}
	return nil, refusal
}

// CheckoutOnce asks one worker for a lease, once. A refusal is an *Error whose code is the reason. The client does not
// renew the lease in the background.
func (p *Pool) CheckoutOnce(ctx context.Context, slot int, o CheckoutOptions) (*Lease, error) {
	token := cmp.Or(o.Token, api.NewLeaseToken())
	request := api.CheckoutRequest{
		RequestID: cmp.Or(o.RequestID, uuid.NewString()), Holder: o.Holder, Session: o.Session, TTLMS: o.TTL.Milliseconds(),
		TokenHash: api.HashLeaseToken(token), AttemptID: uuid.NewString(),
	}
	requested := time.Now()
	lease, err := p.client.CheckoutWorker(ctx, p.name, slot, request)
	if err != nil {
		return nil, err
	}
	if lease.TokenHash != request.TokenHash { // Temporal answers an update of the same ID as before
		return nil, api.Errorf(api.CodeInvalid, "request id %q was used for a lease with another token", request.RequestID)
	}
	lease.Token = token
	return p.client.newLease(*lease, o.Key, requested), nil
}

// CheckoutWorker sends one worker this request for a lease, once. The caller renews the lease and checks it in. A
// request with an AttemptID is withdrawn if Temporal does not answer it.
func (c *Client) CheckoutWorker(ctx context.Context, pool string, slot int,
	request api.CheckoutRequest) (*api.Lease, error) {
	var lease api.Lease
	err := c.update(ctx, api.WorkerWorkflowID(pool, slot), api.UpdateCheckout, "check out "+api.WorkerName(pool, slot),
		request, &lease)
	if err != nil {
		if request.AttemptID != "" && mayBeGranted(err) {
			c.withdraw(pool, slot, request.AttemptID)
		}
		return nil, err
	}
	return &lease, nil
}

// withdrawTimeout bounds how long a withdrawal is tried. The lease would expire later.
const withdrawTimeout = 30 * time.Second

// mayBeGranted reports whether the worker may still grant a lease to a checkout that failed with err: Temporal has it,
// but did not answer in time.
func mayBeGranted(err error) bool {
	return !errors.Is(err, errNotSent) &&
		(is[*client.WorkflowUpdateServiceTimeoutOrCanceledError](err) || api.CodeOf(err) == api.CodeUnavailable)
}

// withdraw sends in the background that nobody waits for the answer to a checkout: its lease would expire unused and
// cost the process of the worker.
func (c *Client) withdraw(pool string, slot int, attempt string) {
	_ = c.goBackground(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
		defer cancel()
		// else the lease expires
		_ = c.temporal.SignalWorkflow(ctx, api.WorkerWorkflowID(pool, slot), "", api.SignalWithdrawCheckout,
			api.Withdrawal{AttemptID: attempt})
	})
}

// candidates returns the workers in service, the most likely free ones first. Equals are in random order, so that many
// clients do not ask the same worker.
func candidates(roster []api.RosterEntry) []api.RosterEntry {
	inService := slices.DeleteFunc(slices.Clone(roster),
		func(e api.RosterEntry) bool { return e.Gone || !e.State.InService() })
	rand.Shuffle(len(inService), func(i, j int) { inService[i], inService[j] = inService[j], inService[i] })
	slices.SortStableFunc(inService, func(a, b api.RosterEntry) int { return cmp.Compare(rank(a), rank(b)) })
	return inService
}

// rank is lower for workers that are more likely to be free.
func rank(e api.RosterEntry) int {
	switch {
	case e.Removing:
		return 2
	case e.State == lifecycle.Busy:
		return 1
	}
	return 0
}
