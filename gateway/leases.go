package gateway

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
)

// adopt makes a lease known that the workflow has just granted or renewed, if its process is here. It reports whether the lease
// counts.
func (g *Gateway) adopt(lease api.Lease, ours bool) bool {
	ref, err := api.ParseLeaseID(lease.ID)
	if err != nil || lease.Host != g.config.HostID {
		return false
	}
	s := g.seatFor(ref)
	if s == nil {
		return false
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	return s.adopt(lease, ref, ours, time.Now())
}

// seatFor returns the seat of a lease's incarnation if its process lives here, else that of a newer one, else nil.
func (g *Gateway) seatFor(ref api.LeaseRef) *seat {
	worker := ref.Worker()
	if d := g.knownDesk(ref.Pool); d != nil {
		d.mu.Lock()
		s := d.seatAt(worker, ref.Incarnation)
		d.mu.Unlock()
		if s != nil {
			return s
		}
	}
	if p, found := g.config.Processes.Get(worker, ref.Incarnation); found && !ended(p) {
		if d := g.desk(ref.Pool); d != nil {
			return d.seatOf(p)
		}
		return nil
	}
	if d := g.knownDesk(ref.Pool); d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		if s := d.seats[worker]; s != nil && s.incarnation > ref.Incarnation {
			return s // of a newer incarnation, it says so itself
		}
	}
	return nil
}

// enter puts a call under a client's lease in flight.
func (g *Gateway) enter(ctx context.Context, id string, f *flight) error {
	ref, err := api.ParseLeaseID(id)
	if err != nil {
		return err
	}
	s := g.seatFor(ref)
	if s == nil {
		return g.verifier.explain(ctx, id, ref, g.config.HostID)
	}
	v, err := s.tryEnter(ref, f)
	if v == unknown {
		err = g.verifyAndEnter(ctx, id, ref, s, f)
	}
	if err != nil {
		return err
	}
	if err := f.awaitBefore(ctx); err != nil {
		s.desk.end(f, errNotSent(err))
		return err
	}
	return nil
}

func (s *seat) tryEnter(ref api.LeaseRef, f *flight) (verdict, error) {
	now := time.Now()
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	if s.desk.shutBy != nil {
		return refused, s.desk.shutBy
	}
	v, why := s.judge(ref, now)
	switch v {
	case refused:
		return v, why
	case admitted:
		if err := s.desk.spend(s, now); err != nil {
			return refused, err
		}
		s.begin(f, now)
	}
	return v, nil
}

// verifyAndEnter asks the workflow whether the lease counts. One caller per worker asks; the others find the answer.
func (g *Gateway) verifyAndEnter(ctx context.Context, id string, ref api.LeaseRef, s *seat, f *flight) error {
	select {
	case <-s.verify:
		defer func() { s.verify <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	now := time.Now()
	if v, err := s.tryEnter(ref, f); v != unknown {
		return err
	}
	if err := g.verifier.remembered(id, now); err != nil {
		return err
	}
	state, err := g.verifier.state(ctx, id, ref)
	if err != nil {
		return err
	}
	if err := confirm(id, ref, state); err != nil {
		s.desk.mu.Lock()
		if state.LeaseSeq > ref.Seq {
			s.supersede(api.LeaseRef{Pool: ref.Pool, Slot: ref.Slot, Incarnation: ref.Incarnation, Seq: state.LeaseSeq}, "a newer lease was granted")
		} else if s.grant != nil && s.grant.ref == ref {
			s.endGrant("the worker has taken it back")
		}
		s.desk.mu.Unlock()
		return g.verifier.remember(id, err, now)
	}
	if !time.Now().Before(state.Lease.ExpiresAt) {
		return api.Errorf(api.CodeLeaseFenced, "lease %s expired at %s; renew leases before they do", id, state.Lease.ExpiresAt.Format(time.RFC3339))
	}
	if state.Lease.Holder == g.Holder() {
		return errOurs(id)
	}
	s.desk.mu.Lock()
	s.adopt(*state.Lease, ref, false, time.Now())
	s.desk.mu.Unlock()
	if v, err := s.tryEnter(ref, f); v != unknown {
		return err
	}
	return api.Errorf(api.CodeLeaseFenced, "lease %s ended while it was verified; check out again", id)
}

// awaitBefore waits until the calls under the lease before are over.
func (f *flight) awaitBefore(ctx context.Context) error {
	if f.grant.before == nil {
		return nil
	}
	select {
	case <-f.grant.before:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Renew extends a client's lease to ttlMS milliseconds from now, 0 meaning the spec's lease.ttl.
func (g *Gateway) Renew(ctx context.Context, id string, ttlMS int64) (*api.Lease, error) {
	if ttlMS < 0 {
		return nil, api.Errorf(api.CodeInvalid, "ttl_ms is %d; it must be 0 (the spec's lease.ttl) or more", ttlMS)
	}
	if err := g.foreign(id); err != nil {
		return nil, err
	}
	lease, err := g.config.Control.Renew(ctx, id, time.Duration(ttlMS)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	g.adopt(*lease, false)
	return lease, nil
}

// foreign refuses what only the gateway itself may do with its own leases.
func (g *Gateway) foreign(id string) error {
	ref, err := api.ParseLeaseID(id)
	if err != nil {
		return err
	}
	s := g.seatFor(ref)
	if s == nil {
		return nil
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	if s.grant != nil && s.grant.ref == ref && s.grant.ours {
		return errOurs(id)
	}
	return nil
}

func errOurs(id string) *api.Error {
	return api.Errorf(api.CodeInvalid, "lease %s is the gateway's own; call the pool instead (POST /v1/pools/POOL/call/METHOD), and the lease returns by itself", id)
}

// Checkin gives a client's lease back, with what the gateway counted under it. No call begins under the lease from here on, also
// when Temporal cannot be told. An outcome that is not ok, error or close is CodeInvalid; "" is ok.
func (g *Gateway) Checkin(ctx context.Context, id string, outcome api.Outcome, reason string) (api.CheckinResult, error) {
	switch outcome {
	case "":
		outcome = api.OutcomeOK
	case api.OutcomeOK, api.OutcomeError, api.OutcomeClose:
	default:
		return api.CheckinResult{}, api.Errorf(api.CodeInvalid, "outcome is %q; it must be ok, error or close", outcome)
	}
	if err := g.foreign(id); err != nil {
		return api.CheckinResult{}, err
	}
	request := api.CheckinRequest{LeaseID: id, Outcome: outcome, Error: reason}
	if ref, err := api.ParseLeaseID(id); err == nil {
		if s := g.seatFor(ref); s != nil {
			if request, err = s.release(ctx, ref, request); err != nil {
				return api.CheckinResult{}, err
			}
		}
	}
	return g.config.Control.CheckinNow(ctx, request)
}

// release ends the grant, waits for its calls, and adds what was counted under it.
func (s *seat) release(ctx context.Context, ref api.LeaseRef, r api.CheckinRequest) (api.CheckinRequest, error) {
	s.desk.mu.Lock()
	gr := s.grant
	if gr == nil || gr.ref != ref {
		s.desk.mu.Unlock()
		return r, nil
	}
	s.endGrant("it was checked in")
	quiet := s.whenQuiet()
	s.desk.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
		return r, api.Errorf(api.CodeDeadlineExceeded, "calls under lease %s are still in flight: %w", r.LeaseID, ctx.Err())
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	return checkinOf(gr, r.Outcome, r.Error), nil
}
