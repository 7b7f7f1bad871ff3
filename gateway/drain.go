package gateway

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
)

// Drain lets no further call begin on an incarnation and waits, until ctx ends, for those in flight; Cut counts those that are
// left then. If the lease is the gateway's own, it lets go, and Checkin is the checkin it would have made.
// There is no way back: a drained incarnation serves nothing more. One that is not here is drained.
func (g *Gateway) Drain(ctx context.Context, worker string, incarnation int64) api.DrainResult {
	s := g.seatOf(worker, incarnation)
	if s == nil {
		return api.DrainResult{Drained: true}
	}
	s.desk.mu.Lock()
	s.draining = true
	quiet := s.whenQuiet()
	s.desk.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	result := api.DrainResult{Drained: s.inFlight == 0, Cut: s.inFlight}
	if s.grant != nil && s.grant.ours {
		s.endGrant("the worker drains")
		result.Checkin = s.letGo()
	}
	return result
}

// letGo forgets an ended lease of the gateway's own, so that only whoever gets the checkin makes it.
func (s *seat) letGo() *api.CheckinRequest {
	checkin := checkinOf(s.grant, api.OutcomeOK, "")
	s.grant = nil
	s.newest.Seq++ // the lease that was let go is older than anything that may follow
	return &checkin
}

// Recall gives back a lease that the gateway itself holds and does not use. Returned is false while calls are in flight under it,
// and for a lease of somebody else's.
func (g *Gateway) Recall(_ context.Context, worker string, incarnation int64, leaseID string) api.RecallResult {
	ref, err := api.ParseLeaseID(leaseID)
	if err != nil || ref.Worker() != worker || ref.Incarnation != incarnation {
		return api.RecallResult{}
	}
	s := g.seatOf(worker, incarnation)
	if s == nil {
		return api.RecallResult{}
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	gr := s.grant
	switch {
	case gr != nil && gr.ref == ref && !gr.ours:
		return api.RecallResult{}
	case gr != nil && gr.ref == ref:
		if s.inFlight > 0 || s.conn != nil && s.conn.InFlight() > 0 {
			return api.RecallResult{}
		}
		s.endGrant("somebody else asked for the worker")
		s.retryAt = time.Now().Add(recallRespite)
		return api.RecallResult{Returned: true, Checkin: s.letGo()}
	}
	// The grant's answer has not arrived, or never will. Fenced first, it is of no use when it does.
	s.supersede(api.LeaseRef{Pool: ref.Pool, Slot: ref.Slot, Incarnation: ref.Incarnation, Seq: ref.Seq + 1}, "it was recalled")
	s.requestID = ""
	s.retryAt = time.Now().Add(recallRespite)
	return api.RecallResult{Returned: true, Checkin: &api.CheckinRequest{LeaseID: leaseID, Outcome: api.OutcomeOK}}
}

// recallRespite is how long the gateway leaves a worker alone that somebody else asked for.
const recallRespite = 250 * time.Millisecond

// seatOf returns the seat of exactly this incarnation, if its process lives here.
func (g *Gateway) seatOf(worker string, incarnation int64) *seat {
	pool, slot, err := api.ParseWorkerName(worker)
	if err != nil {
		return nil
	}
	s := g.seatFor(api.LeaseRef{Pool: pool, Slot: slot, Incarnation: incarnation, Seq: 1})
	if s == nil || s.incarnation != incarnation {
		return nil
	}
	return s
}
