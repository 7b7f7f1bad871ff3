package tempool

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// notifyTimeout bounds the message to a gateway that a lease was checked in.
const notifyTimeout = time.Second

// Checkin returns the lease with an outcome and the usage counted under it. The renewal has stopped when it returns.
// Like Client.Checkin it does not wait for the worker to act. After an error it may be repeated; after a success a
// second call does nothing.
func (l *Lease) Checkin(ctx context.Context, outcome api.Outcome) error {
	if l.state == nil {
		return errUnbound
	}
	return l.state.checkin(ctx, outcome)
}

func (s *leaseState) checkin(ctx context.Context, outcome api.Outcome) error {
	s.mu.Lock()
	again, seen := s.checkedIn, s.seenByGateway
	s.checkedIn = true
	request := api.CheckinRequest{LeaseID: s.lease.ID, Outcome: outcome, Usage: s.usage}
	s.mu.Unlock()
	if again {
		return nil
	}
	if s.stopRenewal != nil {
		s.stopRenewal()
	}
	var err error
	if s.client.fixed != nil { // the gateway has counted the usage
		path := leasePath(s.lease.ID) + "?outcome=" + url.QueryEscape(string(outcome))
		err = s.ask(ctx, transport.Request{Method: http.MethodDelete, Path: path}, &api.CheckinResult{})
	} else if err = s.client.Checkin(ctx, request); err == nil && seen {
		s.notifyGateway()
	}
	s.mu.Lock()
	s.checkedIn, s.checkinFailed = err == nil, err
	s.mu.Unlock()
	s.finish(nil)
	return err
}

// notifyGateway notifies the lease's gateway, without waiting for it, that Temporal has the checkin: clients that wait
// there for a worker get this one at once. A gateway that is not notified finds out a little later.
func (s *leaseState) notifyGateway() {
	request := transport.Request{Method: http.MethodDelete, Path: leasePath(s.lease.ID) + "?recorded=true",
		Header: s.header(), Timeout: notifyTimeout}
	_ = s.client.goBackground(func(ctx context.Context) {
		if reply, err := s.client.transport.Do(ctx, s.gateway(), request); err == nil {
			_ = reply.Close()
		}
	})
}

// Checkin returns a lease by a signal, the cheapest way. It returns when Temporal has recorded the signal, before the
// worker acts on it. A stale lease is not an error here; the worker counts it. If this client renews the lease, the
// next renewal fails, as for a lost one: Lease.Checkin stops it at once.
func (c *Client) Checkin(ctx context.Context, request api.CheckinRequest) error {
	ref, err := api.ParseLeaseID(request.LeaseID)
	if err != nil {
		return err
	}
	err = c.temporal.SignalWorkflow(ctx, api.WorkerWorkflowID(ref.Pool, ref.Slot), "", api.SignalCheckin, request)
	return c.fromTemporal(err, "check in "+request.LeaseID)
}

// CheckinNow returns a lease by an update and reports the worker's state afterwards. A stale lease changes nothing. It
// costs one history event more than Checkin.
func (c *Client) CheckinNow(ctx context.Context, request api.CheckinRequest) (result api.CheckinResult, err error) {
	err = c.updateOfLease(ctx, request.LeaseID, api.UpdateCheckin, "check in", request, &result)
	return result, err
}
