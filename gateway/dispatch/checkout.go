package dispatch

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// MaxCheckoutWait is the largest wait_ms.
const MaxCheckoutWait = 5 * time.Minute

// CheckoutRequest asks for a lease on any worker of a pool.
type CheckoutRequest struct {
	Holder  string `json:"holder"`
	Session string `json:"session,omitempty"`
	// TTLMS is how long the lease lasts unless it is renewed; 0 means the spec's lease.ttl.
	TTLMS int64 `json:"ttl_ms,omitempty"`
	// WaitMS is how long to wait for a free worker; 0 means not at all.
	WaitMS int64 `json:"wait_ms,omitempty"`
	// RequestID makes the checkout idempotent while the same worker answers.
	RequestID string `json:"request_id,omitempty"`
	// Token is the lease's token; "" lets the gateway make one. A repeated RequestID needs the same Token.
	Token string `json:"token,omitempty"`
}

func (r CheckoutRequest) validate() error {
	if invalid := (api.CheckoutRequest{RequestID: r.RequestID, Holder: r.Holder, Session: r.Session,
		TTLMS: r.TTLMS}).Validate(); invalid != nil {
		return invalid
	}
	if strings.HasPrefix(r.Holder, api.GatewayHolderPrefix) {
		return api.Errorf(api.CodeInvalid, "holder is %q; names that start with %s are reserved for gateways", r.Holder,
			api.GatewayHolderPrefix)
	}
	if r.Token != "" {
		if invalid := api.CheckLeaseToken(r.Token); invalid != nil {
			return invalid
		}
	}
	if r.WaitMS < 0 || r.WaitMS > MaxCheckoutWait.Milliseconds() {
		return api.Errorf(api.CodeInvalid, "wait_ms is %d; it must be from 0 to %d", r.WaitMS, MaxCheckoutWait.Milliseconds())
	}
	return nil
}

// Checkout leases a worker of the pool to a client, one of this host if any is free. If none is, it fails with
// CodeNoWorkers without a wait. With one, the client waits in the order of arrival, together with the calls of the
// pool; it fails with CodeQueueTimeout when its time is over and with CodeQueueFull if queue.size clients wait. A
// repeated RequestID gets the lease that its holder has.
func (d *Dispatcher) Checkout(ctx context.Context, pool string, r CheckoutRequest) (*api.Lease, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	options := tempool.CheckoutOptions{Holder: r.Holder, Session: r.Session,
		TTL: time.Duration(r.TTLMS) * time.Millisecond, RequestID: r.RequestID, Token: cmp.Or(r.Token, api.NewLeaseToken())}
	if lease := d.leaseOf(pool, options); lease != nil {
		return lease, nil
	}
	if r.WaitMS > 0 {
		return d.awaitLease(ctx, pool, options, time.Duration(r.WaitMS)*time.Millisecond)
	}
	if n := d.waitingClients(pool); n > 0 {
		return nil, api.Errorf(api.CodeNoWorkers,
			"no worker of pool %s is free, and %d clients wait for one; wait with wait_ms", pool, n).After(time.Second)
	}
	sent := time.Now()
	lease, err := d.checkoutOnce(ctx, pool, options)
	if err != nil {
		return nil, err
	}
	d.adopt(*lease, options.RequestID, sent)
	if ctx.Err() != nil { // nobody is there to use it
		d.CheckinAbandoned(ctx, lease.ID)
		return nil, context.Cause(ctx)
	}
	return lease, nil
}

// leaseOf is the lease that the same request of the same holder got here and still has, or nil.
func (d *Dispatcher) leaseOf(pool string, o tempool.CheckoutOptions) *api.Lease {
	p := d.knownPool(pool)
	if p == nil || o.RequestID == "" {
		return nil
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.order {
		if l := u.lease; l != nil && !l.ended && !u.gone && l.requestID == o.RequestID && l.lease.Holder == o.Holder &&
			TokenAuthority(o.Token, false).opens(l.key) && now.Before(l.expires) {
			lease := l.lease
			lease.Token = o.Token
			lease.TTLMS = max(1, l.expires.Sub(now).Milliseconds())
			return &lease
		}
	}
	return nil
}

// checkoutOnce tries each worker of the pool that may be free, once, in the order of checkoutRank. The attempt in
// progress outlasts ctx by controlTimeout at most: Temporal carries out a request whose sender has left, and a lease
// that nobody knows of would cost the worker its process when it expires.
func (d *Dispatcher) checkoutOnce(ctx context.Context, pool string, o tempool.CheckoutOptions) (*api.Lease, error) {
	attempt, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(controlTimeout, cancel) })()
	status, err := d.config.Control.Status(ctx, pool)
	if err != nil {
		return nil, err
	}
	candidates := slices.DeleteFunc(status.Workers, func(e api.RosterEntry) bool {
		return e.Gone || (e.State != lifecycle.Ready && e.State != lifecycle.Busy)
	})
	rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	ranks := d.checkoutRanks(pool, candidates)
	slices.SortStableFunc(candidates, func(a, b api.RosterEntry) int { return cmp.Compare(ranks[a.Slot], ranks[b.Slot]) })
	refusal := error(api.Errorf(api.CodeNoWorkers, "pool %s has no worker in service (0 of %d)", pool,
		status.Size).After(time.Second))
	for _, entry := range candidates {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		worker := api.WorkerName(pool, entry.Slot)
		lease, err := d.config.Control.Checkout(attempt, worker, o)
		if err == nil {
			return lease, nil
		}
		d.countRefusedCheckout(pool, worker)
		if code := api.CodeOf(err); !code.Retryable() && code != api.CodeWorkerNotFound {
			return nil, err
		}
		refusal = api.Errorf(api.CodeNoWorkers, "no worker of pool %s is free: %w", pool, err).After(waitHint)
	}
	return nil, refusal
}

// checkoutRank orders workers by how likely they are free, the likeliest first.
type checkoutRank int

const (
	freeHere  checkoutRank = iota // on this host, without a known lease
	idleHere                      // leased by the Dispatcher and unused
	otherHost                     // calls to it do not pass this gateway
	takenHere                     // its holder may have returned it without this gateway
)

// checkoutRanks returns by slot the ranks of the workers that this host knows.
func (d *Dispatcher) checkoutRanks(pool string, workers []api.RosterEntry) map[int]checkoutRank {
	ranks := make(map[int]checkoutRank, len(workers))
	for _, entry := range workers {
		if entry.Host != d.config.HostID {
			ranks[entry.Slot] = otherHost
		}
	}
	p := d.knownPool(pool)
	if p == nil {
		return ranks
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, entry := range workers {
		u := p.upstreams[api.WorkerName(pool, entry.Slot)]
		if u == nil || u.gone || u.lease == nil || u.lease.ended {
			continue
		}
		switch {
		case u.lease.own && u.inFlight == 0:
			ranks[entry.Slot] = idleHere
		case u.lease.own, now.Before(u.lease.expires):
			ranks[entry.Slot] = takenHere
		}
	}
	return ranks
}
