package tempool

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// Lease is the exclusive right to one worker and the handle to use it: Call, CallRaw, Stream, Notify, Renew, Checkin.
// Pool.Checkout, TryCheckout, CheckoutOnce, Client.Renew and Client.Adopt return usable leases; a Lease decoded from
// JSON is not usable, and its methods fail with CodeInvalid. It is safe for concurrent use.
type Lease struct {
	api.Lease

	state   *leaseState // nil in a lease that no client returned
	options CallOptions
}

// leaseState is what all copies of a Lease share.
type leaseState struct {
	client *Client
	lease  api.Lease // as granted
	key    string    // of CheckoutOptions
	ttl    time.Duration
	// stopRenewal ends the renewal in the background and waits for its end; nil if there is none.
	stopRenewal func()

	mu        sync.Mutex
	endpoint  string    // of the gateway that carries its calls
	expires   time.Time // by this machine's clock
	usage     api.Usage
	checkedIn bool
	// seenByGateway says that a gateway has granted the lease or carried a call under it.
	seenByGateway bool
	failure       error         // why the lease was lost, or is no longer renewed
	checkinFailed error         // why the last checkin failed
	done          chan struct{} // closed at the first checkin, or when failure is set
}

// newLease makes a lease usable that was granted in answer to a request sent at requested.
func (c *Client) newLease(lease api.Lease, key string, requested time.Time) *Lease {
	ttl := lease.TTL()
	return &Lease{Lease: lease, state: &leaseState{client: c, lease: lease, key: key, ttl: ttl,
		endpoint: lease.Endpoint, expires: requested.Add(ttl), done: make(chan struct{})}}
}

// Adopt makes a lease usable that another program checked out, for example tempool checkout -o json; calls need its
// Token. The client does not renew it in the background.
func (c *Client) Adopt(lease api.Lease) *Lease {
	// The lease's TTL is unknown, so a renewal asks for that of the spec.
	return &Lease{Lease: lease, state: &leaseState{client: c, lease: lease, endpoint: lease.Endpoint,
		expires: lease.ExpiresAt, done: make(chan struct{})}}
}

var errUnbound = api.Errorf(api.CodeInvalid, "this lease was decoded from a message; make it usable with Client.Adopt")

// With returns the lease with other options for its calls; l is not changed. Priority has no effect, and Session only
// if the checkout named none.
func (l *Lease) With(o CallOptions) *Lease {
	other := *l
	other.options = o
	return &other
}

// Expires returns when the lease ends unless it is renewed, by this machine's clock. Renewals move it; the field
// ExpiresAt stays as granted.
func (l *Lease) Expires() time.Time {
	if l.state == nil {
		return l.ExpiresAt
	}
	return l.state.until()
}

func (s *leaseState) until() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expires
}

// Done returns a channel that is closed when the lease is checked in, even if that fails, is lost, or is no longer
// renewed; Err says which. It is nil for a lease that is not usable.
func (l *Lease) Done() <-chan struct{} {
	if l.state == nil {
		return nil
	}
	return l.state.done
}

// Err returns nil while the lease is held and after its Checkin, else why it was lost: lease_fenced, lease_not_found,
// worker_not_found, or the end of the context of its Checkout; with Options.Gateways also why it could not be renewed
// until it ended. After a Checkin that fails it returns that error, until one succeeds. A lease that Client.Checkin has
// returned counts as lost.
func (l *Lease) Err() error {
	if l.state == nil {
		return nil
	}
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	return cmp.Or(l.state.failure, l.state.checkinFailed)
}

// gateway returns the endpoint for calls under the lease.
func (s *leaseState) gateway() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoint
}

func (s *leaseState) setGateway(endpoint string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoint = endpoint
}

// atGateways sends a request to the lease's gateway and, after a retryable error, to the others of Options.Gateways.
// The lease stays with the one that answers.
func (s *leaseState) atGateways(ctx context.Context, send func(endpoint string) error,
	retryable func(error) bool) error {
	endpoint := s.gateway()
	err := send(endpoint)
	fixed, tried := s.client.fixed, map[string]bool{}
	for fixed != nil && retryable(err) && ctx.Err() == nil {
		tried[endpoint] = true
		other, unknown := fixed.Acquire(ctx, tried)
		if unknown != nil || other == nil {
			break
		}
		endpoint = other.URL()
		err = send(endpoint)
		fixed.Release(other, err)
		if hasAnswered(err) {
			s.setGateway(endpoint)
		}
	}
	return err
}

// hasAnswered reports whether a gateway that gave err has reached the lease's worker.
func hasAnswered(err error) bool {
	_, worker := errors.AsType[*api.WorkerError](err)
	return err == nil || worker
}

// ask sends an idempotent request about the lease and reads the answer's JSON into out.
func (s *leaseState) ask(ctx context.Context, request transport.Request, out any) error {
	request.Header = s.header()
	left := len(s.client.gateways)
	if !slices.Contains(s.client.gateways, s.gateway()) { // one to which a gateway referred
		left++
	}
	return s.atGateways(ctx, func(endpoint string) error {
		request.Timeout = 0
		// One that does not answer leaves time for another one, which may ask the same host for some seconds first.
		if end, limited := ctx.Deadline(); limited && left > 1 {
			request.Timeout = time.Until(end) / 3
		}
		left--
		return s.client.askGateway(ctx, endpoint, request, out)
	}, func(err error) bool {
		return slices.Contains([]api.Code{api.CodeUnavailable, api.CodeDeadlineExceeded}, api.CodeOf(err))
	})
}

// finish closes done once; failure is nil after a checkin.
func (s *leaseState) finish(failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.done:
	default:
		s.failure = failure
		close(s.done)
	}
}
