package tempool

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// Renew extends the lease to the TTL of its checkout, from now. Leases that Checkout returned are renewed in the
// background.
func (l *Lease) Renew(ctx context.Context) error {
	if l.state == nil {
		return errUnbound
	}
	return l.state.renew(ctx)
}

// Renew extends a lease to ttl from now (0: the spec's lease.ttl) and returns it. lease is ID, or ID~TOKEN: then the
// token must be the lease's, and calls can be made under the lease returned. It fails with lease_fenced,
// lease_not_found, worker_not_found, forbidden, invalid or unavailable.
func (c *Client) Renew(ctx context.Context, lease string, ttl time.Duration) (*Lease, error) {
	id, token := api.SplitLeaseID(lease)
	renewed, err := c.renew(ctx, id, api.HashLeaseToken(token), ttl)
	if err != nil {
		return nil, err
	}
	renewed.Token = token
	return c.Adopt(renewed), nil
}

func (c *Client) renew(ctx context.Context, leaseID, tokenHash string, ttl time.Duration) (lease api.Lease, err error) {
	err = c.updateOfLease(ctx, leaseID, api.UpdateRenew, "renew",
		api.RenewRequest{LeaseID: leaseID, TTLMS: ttl.Milliseconds(), TokenHash: tokenHash}, &lease)
	return lease, err
}

func (s *leaseState) renew(ctx context.Context) error {
	requested := time.Now()
	var renewed api.Lease
	var err error
	if s.client.fixed != nil {
		body := transport.JSONBody(map[string]int64{"ttl_ms": s.ttl.Milliseconds()})
		err = s.ask(ctx, transport.Request{Method: http.MethodPut, Path: leasePath(s.lease.ID), Body: body}, &renewed)
	} else {
		renewed, err = s.client.renew(ctx, s.lease.ID, "", s.ttl)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expires = requested.Add(renewed.TTL()) // the clock behind ExpiresAt may differ from this one
	return nil
}

// askGateway sends a request to a gateway and reads the answer's JSON into out.
func (c *Client) askGateway(ctx context.Context, endpoint string, request transport.Request, out any) error {
	reply, err := c.transport.Do(ctx, endpoint, request)
	if err != nil {
		return err
	}
	return reply.ReadJSON(out)
}

// header proves to a gateway that this client may use the lease.
func (s *leaseState) header() http.Header {
	return http.Header{api.HeaderLeaseToken: {s.lease.Token}}
}

func leasePath(leaseID string) string { return "/v1/leases/" + url.PathEscape(leaseID) }
