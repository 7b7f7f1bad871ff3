package gateway

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/gateway/pool"
)

// maxReasonBytes bounds the reason of a checkin, which becomes part of the worker's history.
const maxReasonBytes = 1 << 10

// leaseOf returns the ID of the lease in the path, and the authority to use it: its token from the path or a header.
func leaseOf(r *http.Request) (id string, a lease.Authority) {
	id, token := api.SplitLeaseID(r.PathValue("id"))
	return id, lease.TokenAuthority(cmp.Or(token, r.Header.Get(api.HeaderLeaseToken)), principalOf(r).Has(access.Admin))
}

func (g *Gateway) postLease(w http.ResponseWriter, r *http.Request) error {
	var request pool.CheckoutRequest
	if err := readJSON(w, r, &request); err != nil {
		return err
	}
	wait := time.Duration(min(max(request.WaitMS, 0), pool.MaxCheckoutWait.Milliseconds())) * time.Millisecond
	ctx, cancel := context.WithTimeout(r.Context(), wait+answerTimeout)
	defer cancel()
	request = request.Identified()
	request.Forward = g.forwardCheckout(w, r, request)
	if caller := callerOf(r); caller != nil {
		guest := caller.Guest()
		request.Guest = &guest
	}
	lease, err := g.Checkout(ctx, r.PathValue("pool"), request)
	if request.Forward != nil && wait == 0 && api.CodeOf(err) == api.CodeNoWorkers &&
		!g.MayLeave(r.PathValue("pool")) { // it does not overtake those who wait
		for _, to := range g.peers.Serving(ctx, r.PathValue("pool")) {
			if request.Forward(ctx, to) == nil {
				return nil
			}
		}
	}
	switch {
	case err != nil:
		return err
	case lease == nil: // the client has the answer of another host
		return nil
	case r.Context().Err() != nil: // the client is gone and will never use the lease
		g.CheckinAbandoned(r.Context(), lease.ID)
		return nil
	}
	writeLease(w, lease)
	return nil
}

func writeLease(w http.ResponseWriter, lease *api.Lease) {
	w.Header().Set("Location", "/v1/leases/"+lease.ID)
	writeJSON(w, http.StatusCreated, lease)
}

// renewRequest asks for more time for a lease.
type renewRequest struct {
	TTLMS int64 `json:"ttl_ms"`
}

func (g *Gateway) putLease(ctx context.Context, r *http.Request, request renewRequest) (*api.Lease, error) {
	id, authority := leaseOf(r)
	return g.Renew(ctx, id, authority, request.TTLMS)
}

// deleteLease is DELETE /v1/leases/{id}?outcome=…&error=…. With recorded=true Temporal has the checkin already.
func (g *Gateway) deleteLease(ctx context.Context, r *http.Request) (api.CheckinResult, error) {
	query := r.URL.Query()
	id, authority := leaseOf(r)
	if query.Get("recorded") == "true" {
		return api.CheckinResult{}, g.CheckedIn(id, authority)
	}
	reason := query.Get("error")
	if len(reason) > maxReasonBytes {
		return api.CheckinResult{}, api.Errorf(api.CodeInvalid, "error has %d bytes; at most %d are allowed", len(reason),
			maxReasonBytes)
	}
	return g.Checkin(ctx, id, authority, api.Outcome(query.Get("outcome")), reason)
}
