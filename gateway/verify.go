package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

const (
	// verifyTimeout bounds the question to a worker's workflow.
	verifyTimeout = 5 * time.Second
	// rememberRefusal is how long a lease that was refused is refused again unasked, so that a client that insists costs nothing.
	rememberRefusal = time.Second
	// maxRefusals bounds the refusals remembered.
	maxRefusals = 1024
	// maxQuestions bounds the workflows asked at one time about leases whose worker is not here.
	maxQuestions = 4
)

// verifier asks workflows about leases that the gateway has not seen.
type verifier struct {
	control Control
	room    chan struct{}

	mu      sync.Mutex
	refused map[string]refusal // by lease
}

type refusal struct {
	err   error
	until time.Time
}

func newVerifier(c Control) *verifier {
	return &verifier{control: c, room: make(chan struct{}, maxQuestions), refused: make(map[string]refusal)}
}

// remembered is the refusal of this lease a moment ago, or nil.
func (v *verifier) remembered(id string, now time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r, found := v.refused[id]; found && now.Before(r.until) {
		return r.err
	}
	return nil
}

func (v *verifier) remember(id string, err error, now time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.refused) >= maxRefusals {
		for old, r := range v.refused {
			if !now.Before(r.until) {
				delete(v.refused, old)
			}
		}
		if len(v.refused) >= maxRefusals {
			return err
		}
	}
	v.refused[id] = refusal{err, now.Add(rememberRefusal)}
	return err
}

// state asks the workflow of a worker. What keeps it from answering is CodeUnavailable; a worker that is not there is
// CodeLeaseNotFound.
func (v *verifier) state(ctx context.Context, id string, ref api.LeaseRef) (api.WorkerState, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	state, err := v.control.State(ctx, ref.Worker())
	switch {
	case err == nil:
		return state, nil
	case api.CodeOf(err) == api.CodeWorkerNotFound || api.CodeOf(err) == api.CodePoolNotFound:
		return state, api.Errorf(api.CodeLeaseNotFound, "lease %s is on no worker that exists: %w", id, err)
	}
	return state, api.Errorf(api.CodeUnavailable, "lease %s cannot be verified now: %w", id, err).After(time.Second)
}

// confirm compares a lease with what its worker's workflow says of itself: nil means that it is the lease that is out.
func confirm(id string, ref api.LeaseRef, state api.WorkerState) error {
	switch {
	case state.Lease != nil && state.Lease.ID == id:
		return nil
	case ref.Seq > state.LeaseSeq:
		return api.Errorf(api.CodeLeaseNotFound, "%s has never granted a lease %s; check out with POST /v1/pools/%s/leases", ref.Worker(), id, ref.Pool)
	}
	return api.Errorf(api.CodeLeaseFenced, "lease %s on %s has ended; check out again", id, ref.Worker())
}

// explain says what is wrong with a lease whose process is not on this host.
func (v *verifier) explain(ctx context.Context, id string, ref api.LeaseRef, hostID string) error {
	now := time.Now()
	if err := v.remembered(id, now); err != nil {
		return err
	}
	select {
	case v.room <- struct{}{}:
		defer func() { <-v.room }()
	case <-ctx.Done():
		return ctx.Err()
	}
	state, err := v.state(ctx, id, ref)
	if err != nil {
		if api.CodeOf(err) == api.CodeUnavailable {
			return err
		}
		return v.remember(id, err, now)
	}
	if err := confirm(id, ref, state); err != nil {
		return v.remember(id, err, now)
	}
	if state.Lease.Host != hostID {
		other := elsewhere{host: state.Lease.Host, endpoint: state.Lease.Endpoint}
		other.coded = api.Errorf(api.CodeLeaseNotFound, "lease %s is on host %s, not here (%s); use the lease's own endpoint, %s", id, other.host, hostID, other.endpoint)
		return v.remember(id, other, now)
	}
	return v.remember(id, api.Errorf(api.CodeLeaseFenced, "the process of lease %s is no longer on this host; check out again", id), now)
}
