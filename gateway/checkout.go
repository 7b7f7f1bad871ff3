package gateway

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// Pauses between the tries of a checkout that waits.
const (
	checkoutPause    = 20 * time.Millisecond
	checkoutMaxPause = 500 * time.Millisecond
	// MaxCheckoutWait is the longest wait_ms.
	MaxCheckoutWait = 5 * time.Minute
)

// CheckoutRequest asks for a lease on any worker of a pool.
type CheckoutRequest struct {
	Holder  string `json:"holder"`
	Session string `json:"session,omitempty"`
	// TTLMS is how long the lease lasts unless renewed; 0 means the spec's lease.ttl.
	TTLMS int64 `json:"ttl_ms,omitempty"`
	// WaitMS is how long to wait for a worker to come free; 0 means not at all.
	WaitMS int64 `json:"wait_ms,omitempty"`
	// RequestID makes the checkout idempotent for as long as the same worker answers.
	RequestID string `json:"request_id,omitempty"`
}

func (r CheckoutRequest) validate() error {
	switch {
	case r.Holder == "":
		return api.Errorf(api.CodeInvalid, "a checkout needs a holder: who uses the worker")
	case r.TTLMS < 0:
		return api.Errorf(api.CodeInvalid, "ttl_ms is %d; it must be 0 (the spec's lease.ttl) or more", r.TTLMS)
	case r.WaitMS < 0 || r.WaitMS > MaxCheckoutWait.Milliseconds():
		return api.Errorf(api.CodeInvalid, "wait_ms is %d; it must be from 0 to %d", r.WaitMS, MaxCheckoutWait.Milliseconds())
	}
	return nil
}

// Checkout leases a worker of the pool to somebody else, one of this host's if any is free. No free worker within the wait is
// CodeNoWorkers without one and CodeQueueTimeout after one.
func (g *Gateway) Checkout(ctx context.Context, pool string, r CheckoutRequest) (*api.Lease, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	options := tempool.CheckoutOptions{Holder: r.Holder, Session: r.Session, TTL: time.Duration(r.TTLMS) * time.Millisecond, RequestID: r.RequestID}
	until := time.Now().Add(time.Duration(r.WaitMS) * time.Millisecond)
	for pause := checkoutPause; ; pause = min(2*pause, checkoutMaxPause) {
		lease, err := g.checkoutNow(ctx, pool, options)
		if err == nil {
			g.adopt(*lease, false)
			return lease, nil
		}
		if !api.CodeOf(err).Retryable() || r.WaitMS == 0 {
			return nil, err
		}
		wait := pause/2 + rand.N(pause)
		if time.Now().Add(wait).After(until) {
			return nil, api.Errorf(api.CodeQueueTimeout, "no worker of pool %s came free within %d ms: %w", pool, r.WaitMS, err).After(checkoutMaxPause)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-g.stopping:
			timer.Stop()
			return nil, errClosing
		}
	}
}

// checkoutNow asks each worker of the pool that may be free, once: those of this host that nobody is known to have, since only
// their calls come through here, then those that the gateway itself merely holds, then other hosts', and last those whose holder
// may have given them back behind the gateway's back.
func (g *Gateway) checkoutNow(ctx context.Context, pool string, o tempool.CheckoutOptions) (*api.Lease, error) {
	status, err := g.config.Control.Status(ctx, pool)
	if err != nil {
		return nil, err
	}
	candidates := slices.DeleteFunc(status.Workers, func(e api.RosterEntry) bool {
		return e.Gone || (e.State != lifecycle.Ready && e.State != lifecycle.Busy)
	})
	rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	standings := g.standings(pool, candidates)
	slices.SortStableFunc(candidates, func(a, b api.RosterEntry) int { return cmp.Compare(standings[a.Slot], standings[b.Slot]) })
	refusal := error(api.Errorf(api.CodeNoWorkers, "pool %s has no worker in service (0 of %d)", pool, status.Size).After(time.Second))
	for _, entry := range candidates {
		lease, err := g.config.Control.Checkout(ctx, api.WorkerName(pool, entry.Slot), o)
		if err == nil {
			return lease, nil
		}
		g.refused(pool, entry.Slot)
		if code := api.CodeOf(err); !code.Retryable() && code != api.CodeWorkerNotFound {
			return nil, err
		}
		refusal = api.Errorf(api.CodeNoWorkers, "no worker of pool %s is free: %w", pool, err).After(checkoutPause)
	}
	return nil, refusal
}

// standing is how likely a worker is to be free; the least likely is asked last.
type standing int

const (
	freeHere standing = iota
	idleHere
	remote
	takenHere
)

// standings tells by slot how the workers stand as far as this host knows.
func (g *Gateway) standings(pool string, workers []api.RosterEntry) map[int]standing {
	all := make(map[int]standing, len(workers))
	for _, entry := range workers {
		if entry.Host != g.config.HostID {
			all[entry.Slot] = remote
		}
	}
	d := g.knownDesk(pool)
	if d == nil {
		return all
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, entry := range workers {
		s := d.seats[api.WorkerName(pool, entry.Slot)]
		if s == nil || s.gone || s.grant == nil || s.grant.ended {
			continue
		}
		switch {
		case s.grant.ours && s.inFlight == 0:
			all[entry.Slot] = idleHere
		case s.grant.ours, now.Before(s.grant.lease.ExpiresAt):
			all[entry.Slot] = takenHere
		}
	}
	return all
}
