package lease

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

const (
	// VerifyTimeout bounds a query of a workflow.
	VerifyTimeout = 5 * time.Second
	// refusalTTL is how long a lease that has ended is refused again without a query.
	refusalTTL = time.Second
	// otherHostTTL is how long the host of a lease is cached; its incarnation never moves.
	otherHostTTL = 10 * time.Second
	// maxRefusals bounds the cached refusals.
	maxRefusals = 1024
	// maxVerifications bounds the concurrent queries about leases whose worker is not on this host.
	maxVerifications = 4
)

// Verifier asks workflows about leases that a host has not seen, and remembers refusals for a moment.
type Verifier struct {
	control Control
	slots   chan struct{}

	mu      sync.Mutex
	refused map[string]refusal // by lease
}

// NewVerifier returns a Verifier that asks by control.
func NewVerifier(control Control) *Verifier {
	return &Verifier{control: control, slots: make(chan struct{}, maxVerifications), refused: make(map[string]refusal)}
}

type refusal struct {
	err   error
	until time.Time
}

// Cached is the recent refusal of this lease, or nil.
func (v *Verifier) Cached(id string, now time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r, found := v.refused[id]; found && now.Before(r.until) {
		return r.err
	}
	return nil
}

// Cache caches that a lease has ended or is on another host, if there is room, and returns the error. It does not cache
// that a lease was never granted, or that its worker does not exist: it may be the next one, whose number somebody else
// has tried.
func (v *Verifier) Cache(id string, err error, now time.Time) error {
	_, other := err.(api.OtherHostError)
	if api.CodeOf(err) != api.CodeLeaseFenced && !other {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.refused) >= maxRefusals {
		maps.DeleteFunc(v.refused, func(_ string, r refusal) bool { return !now.Before(r.until) })
	}
	ttl := refusalTTL
	if other {
		ttl = otherHostTTL
	}
	if len(v.refused) < maxRefusals {
		v.refused[id] = refusal{err, now.Add(ttl)}
	}
	return err
}

// State queries the workflow of a lease's worker. It fails with CodeLeaseNotFound if there is no such worker, and with
// CodeUnavailable if the workflow does not answer.
func (v *Verifier) State(ctx context.Context, id string, ref api.LeaseRef) (api.WorkerState, error) {
	ctx, cancel := context.WithTimeout(ctx, VerifyTimeout)
	defer cancel()
	state, err := v.control.State(ctx, ref.Worker())
	switch {
	case err == nil:
		return state, nil
	case api.CodeOf(err) == api.CodeWorkerNotFound || api.CodeOf(err) == api.CodePoolNotFound:
		return state, api.Errorf(api.CodeLeaseNotFound, "lease %s names a worker that does not exist: %w", id, err)
	}
	return state, api.Errorf(api.CodeUnavailable, "lease %s cannot be verified now: %w", id, err).After(time.Second)
}

// Confirm returns nil if the state of its worker's workflow confirms the lease.
func Confirm(id string, ref api.LeaseRef, state api.WorkerState) error {
	switch {
	case state.Lease != nil && state.Lease.ID == id:
		return nil
	case ref.Seq > state.LeaseSeq:
		return api.Errorf(api.CodeLeaseNotFound, "%s never granted lease %s; check out with POST /v1/pools/%s/leases",
			ref.Worker(), id, ref.Pool)
	}
	return api.Errorf(api.CodeLeaseFenced, "lease %s on %s has ended; check out again", id, ref.Worker())
}

// Explain returns the error of a lease whose process is not on this host.
func (v *Verifier) Explain(ctx context.Context, id string, ref api.LeaseRef, hostID string) error {
	now := time.Now()
	if err := v.Cached(id, now); err != nil {
		return err
	}
	select {
	case v.slots <- struct{}{}:
		defer func() { <-v.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	state, err := v.State(ctx, id, ref)
	if err == nil {
		err = Confirm(id, ref, state)
	}
	switch {
	case err != nil:
	case state.Lease.Host == hostID:
		err = api.Errorf(api.CodeLeaseFenced, "the process of lease %s is no longer on this host; check out again", id)
	default:
		err = api.OtherHostError{Host: state.Lease.Host, Endpoint: state.Lease.Endpoint,
			Coded: api.Errorf(api.CodeLeaseNotFound,
				"lease %s is on host %s, not on this one (%s); use the lease's endpoint, %s", id, state.Lease.Host, hostID,
				state.Lease.Endpoint)}
	}
	return v.Cache(id, err, now)
}
