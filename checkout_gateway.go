package tempool

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/balance"
	"github.com/tempool/tempool/internal/transport"
)

// checkoutOverrun is how long an attempt may take after the end of the wait.
const checkoutOverrun = 2 * time.Second

const (
	// maxGatewayWait is the longest wait that one request to a gateway asks for; the gateway allows five minutes.
	maxGatewayWait = 4 * time.Minute
	// gatewayMargin is how much sooner than the caller's deadline a gateway gives up, so that its answer arrives in time.
	gatewayMargin = 20 * time.Millisecond
)

// waitEnd is when a caller stops waiting for a worker; nil for one that does not wait.
type waitEnd struct{ context.Context }

// left is how long a gateway may let the caller wait.
func (w *waitEnd) left() time.Duration {
	if w == nil {
		return 0
	}
	if deadline, has := w.Deadline(); has {
		return min(max(time.Until(deadline)-gatewayMargin, 0), maxGatewayWait)
	}
	return maxGatewayWait
}

func (w *waitEnd) over() bool { return w != nil && w.Err() != nil }

// checkoutByGateway asks the gateways, one after another, for a lease on any free worker, until one grants it. It waits
// in the line of each that answers until the wait ends. ctx bounds the requests. A caller that is cancelled leaves at
// once: the gateway then checks in what it grants.
func (p *Pool) checkoutByGateway(ctx context.Context, end *waitEnd, gateways *balance.Balancer,
	o CheckoutOptions) (*Lease, error) {
	if o.Slot != nil {
		return nil, api.Errorf(api.CodeInvalid,
			"a gateway chooses the worker itself; to check out a particular one, use a client without Options.Gateways")
	}
	o.RequestID, o.Token = cmp.Or(o.RequestID, uuid.NewString()), cmp.Or(o.Token, api.NewLeaseToken())
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	defer context.AfterFunc(p.client.ctx, leave)()
	if end != nil {
		defer context.AfterFunc(end, func() {
			if errors.Is(end.Err(), context.Canceled) { // one whose deadline has passed waits for the answer
				leave()
			}
		})()
	}
	tried := map[string]bool{}
	var refusal error
	for {
		endpoint, err := gateways.Acquire(ctx, tried)
		if err != nil || endpoint == nil {
			return nil, cmp.Or(refusal, err)
		}
		lease, err := p.checkoutAt(ctx, endpoint.URL(), o, end.left())
		gateways.Release(endpoint, err)
		if err == nil || !api.CodeOf(err).Retryable() || end.over() {
			return lease, err
		}
		refusal, tried[endpoint.URL()] = err, true
	}
}

// checkoutAt asks one gateway.
func (p *Pool) checkoutAt(ctx context.Context, endpoint string, o CheckoutOptions, wait time.Duration) (*Lease, error) {
	body := transport.JSONBody(map[string]any{
		"holder": o.Holder, "session": o.Session, "key": o.Key, "ttl_ms": o.TTL.Milliseconds(),
		"request_id": o.RequestID, "wait_ms": wait.Milliseconds(), "token": o.Token,
	})
	var lease api.Lease
	requested := time.Now()
	err := p.client.askGateway(ctx, endpoint,
		transport.Request{Method: http.MethodPost, Path: "/v1/pools/" + url.PathEscape(p.name) + "/leases", Body: body},
		&lease)
	if err != nil {
		return nil, err
	}
	lease.Token = o.Token
	if wait > 0 { // the lease is as old as the answer, not as the wait
		requested = time.Now()
	}
	granted := p.client.newLease(lease, o.Key, requested)
	granted.state.seenByGateway = true
	if p.client.fixed != nil {
		// The gateway's own name for itself may not resolve here; if the lease is on another host, the first call is
		// redirected.
		granted.state.setGateway(endpoint)
	}
	return granted, nil
}
