package tempool

import (
	"context"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// Checkin returns the lease with an outcome and the usage counted under it. The renewal has stopped when it returns. Like Client.Checkin it
// does not wait for the worker to act. After an error it may be repeated; after a success a second call does nothing.
func (l *Lease) Checkin(ctx context.Context, outcome api.Outcome) error {
	if l.state == nil {
		return errUnbound
	}
	return l.state.checkin(ctx, outcome)
}

func (s *leaseState) checkin(ctx context.Context, outcome api.Outcome) error {
	s.mu.Lock()
	again := s.checkedIn
	s.checkedIn = true
	request := api.CheckinRequest{LeaseID: s.lease.ID, Outcome: outcome, Usage: s.usage}
	s.mu.Unlock()
	if again {
		return nil
	}
	s.client.stopRenewal(s.lease.ID)
	var err error
	if s.client.fixed != nil { // the gateway has counted the usage
		path := leasePath(s.lease.ID) + "?outcome=" + url.QueryEscape(string(outcome))
		err = s.client.askGateway(ctx, s.gateway(), transport.Request{Method: http.MethodDelete, Path: path, Header: s.header()}, &api.CheckinResult{})
	} else {
		err = s.client.Checkin(ctx, request)
	}
	if err != nil {
		s.mu.Lock()
		s.checkedIn = false
		s.mu.Unlock()
		return err
	}
	s.finish(nil)
	return nil
}

// Checkin returns a lease by a signal, the cheapest way. It returns when Temporal has recorded the signal, before the worker acts on it. A
// stale lease is no error here; the worker counts it. If this client renews the lease, the renewal stops.
func (c *Client) Checkin(ctx context.Context, request api.CheckinRequest) error {
	ref, err := api.ParseLeaseID(request.LeaseID)
	if err != nil {
		return err
	}
	c.stopRenewal(request.LeaseID)
	return c.fromTemporal(c.temporal.SignalWorkflow(ctx, api.WorkerWorkflowID(ref.Pool, ref.Slot), "", api.SignalCheckin, request), "check in "+request.LeaseID)
}

// CheckinNow returns a lease by an update and reports the worker's state afterwards. A stale lease changes nothing. It costs one history event
// more than Checkin.
func (c *Client) CheckinNow(ctx context.Context, request api.CheckinRequest) (result api.CheckinResult, err error) {
	ref, err := api.ParseLeaseID(request.LeaseID)
	if err != nil {
		return result, err
	}
	c.stopRenewal(request.LeaseID)
	err = c.update(ctx, workflowUpdate{
		workflowID: api.WorkerWorkflowID(ref.Pool, ref.Slot), name: api.UpdateCheckin, updateID: uuid.NewString(),
		argument: request, action: "check in " + request.LeaseID,
	}, &result)
	return result, err
}
