package gateway

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/lifecycle"
)

// Pauses between the tries of a checkout that waits.
const (
	checkoutPause    = 20 * time.Millisecond
	checkoutMaxPause = 500 * time.Millisecond
	// MaxCheckoutWait is the longest wait_ms.
	MaxCheckoutWait = 5 * time.Minute
)

// CheckoutRequest asks for a lease on any worker of a pool.
type CheckoutRequest struct {
	Holder  string `json:"holder"`
	Session string `json:"session,omitempty"`
	// TTLMS is how long the lease lasts unless renewed; 0 means the spec's lease.ttl.
	TTLMS int64 `json:"ttl_ms,omitempty"`
	// WaitMS is how long to wait for a worker to come free; 0 means not at all.
	WaitMS int64 `json:"wait_ms,omitempty"`
	// RequestID makes the checkout idempotent for as long as the same worker answers.
	RequestID string `json:"request_id,omitempty"`
}

func (r CheckoutRequest) validate() error {
	switch {
	case r.Holder == "":
		return tempool.Errorf(tempool.CodeInvalid, "a checkout needs a holder: who uses the worker")
	case r.TTLMS < 0:
		return tempool.Errorf(tempool.CodeInvalid, "ttl_ms is %d; it must be 0 (the spec's lease.ttl) or more", r.TTLMS)
	case r.WaitMS < 0 || r.WaitMS > MaxCheckoutWait.Milliseconds():
		return tempool.Errorf(tempool.CodeInvalid, "wait_ms is %d; it must be from 0 to %d", r.WaitMS, MaxCheckoutWait.Milliseconds())
	}
	return nil
}

// Checkout leases a worker of the pool to somebody else, one of this host's if any is free. No free worker within the wait is
// CodeNoWorkers without one and CodeQueueTimeout after one.
func (g *Gateway) Checkout(ctx context.Context, pool string, r CheckoutRequest) (*tempool.Lease, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	options := tempool.CheckoutOptions{Holder: r.Holder, Session: r.Session, TTL: time.Duration(r.TTLMS) * time.Millisecond, RequestID: r.RequestID}
	until := time.Now().Add(time.Duration(r.WaitMS) * time.Millisecond)
	for pause := checkoutPause; ; pause = min(2*pause, checkoutMaxPause) {
		lease, err := g.checkoutNow(ctx, pool, options)
		if err == nil {
			g.adopt(*lease, false)
			return lease, nil
		}
		if !tempool.CodeOf(err).Retryable() || r.WaitMS == 0 {
			return nil, err
		}
		wait := pause/2 + rand.N(pause)
		if time.Now().Add(wait).After(until) {
			return nil, tempool.Errorf(tempool.CodeQueueTimeout, "no worker of pool %s came free within %d ms: %w", pool, r.WaitMS, err).After(checkoutMaxPause)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-g.stopping:
			timer.Stop()
			return nil, errClosing
		}
	}
}

// checkoutNow tries this host's free workers first, since only their calls come through here, and then all.
func (g *Gateway) checkoutNow(ctx context.Context, pool string, o tempool.CheckoutOptions) (*tempool.Lease, error) {
	status, err := g.config.Control.Status(ctx, pool)
	if err != nil {
		return nil, err
	}
	for _, entry := range status.Workers {
		if entry.State != lifecycle.Ready || entry.Host != g.config.HostID {
			continue
		}
		lease, err := g.config.Control.Checkout(ctx, tempool.WorkerName(pool, entry.Slot), o)
		if err == nil || !tempool.CodeOf(err).Retryable() && tempool.CodeOf(err) != tempool.CodeWorkerNotFound {
			return lease, err
		}
	}
	return g.config.Control.TryCheckout(ctx, pool, o)
}

// adopt makes a lease known that the workflow has just granted or renewed, if its process is here. It reports whether the lease
// counts.
func (g *Gateway) adopt(lease tempool.Lease, ours bool) bool {
	ref, err := tempool.ParseLeaseID(lease.ID)
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

// seatFor returns the seat of a lease's incarnation if its process lives here, else nil.
func (g *Gateway) seatFor(ref tempool.LeaseRef) *seat {
	worker := ref.Worker()
	if d := g.knownDesk(ref.Pool); d != nil {
		d.mu.Lock()
		s := d.seats[worker]
		d.mu.Unlock()
		if s != nil && s.incarnation >= ref.Incarnation {
			return s // of a newer incarnation, it says so itself
		}
	}
	p, found := g.config.Processes.Get(worker, ref.Incarnation)
	if !found {
		return nil
	}
	select {
	case <-p.Done():
		return nil
	default:
	}
	if d := g.desk(ref.Pool); d != nil {
		return d.seatOf(p)
	}
	return nil
}

// enter puts a call under a client's lease in flight.
func (g *Gateway) enter(ctx context.Context, id string, f *flight) error {
	ref, err := tempool.ParseLeaseID(id)
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

func (s *seat) tryEnter(ref tempool.LeaseRef, f *flight) (verdict, error) {
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
func (g *Gateway) verifyAndEnter(ctx context.Context, id string, ref tempool.LeaseRef, s *seat, f *flight) error {
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
			s.supersede(tempool.LeaseRef{Pool: ref.Pool, Slot: ref.Slot, Incarnation: ref.Incarnation, Seq: state.LeaseSeq}, "a newer lease was granted")
		} else if s.grant != nil && s.grant.ref == ref {
			s.endGrant("the worker has taken it back")
		}
		s.desk.mu.Unlock()
		return g.verifier.remember(id, err, now)
	}
	if !time.Now().Before(state.Lease.ExpiresAt) {
		return tempool.Errorf(tempool.CodeLeaseFenced, "lease %s expired at %s; renew leases before they do", id, state.Lease.ExpiresAt.Format(time.RFC3339))
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
	return tempool.Errorf(tempool.CodeLeaseFenced, "lease %s ended while it was verified; check out again", id)
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
func (g *Gateway) Renew(ctx context.Context, id string, ttlMS int64) (*tempool.Lease, error) {
	if ttlMS < 0 {
		return nil, tempool.Errorf(tempool.CodeInvalid, "ttl_ms is %d; it must be 0 (the spec's lease.ttl) or more", ttlMS)
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
	ref, err := tempool.ParseLeaseID(id)
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

func errOurs(id string) *tempool.Error {
	return tempool.Errorf(tempool.CodeInvalid, "lease %s is the gateway's own; call the pool instead (POST /v1/pools/POOL/call/METHOD), and the lease returns by itself", id)
}

// Checkin gives a client's lease back, with what the gateway counted under it. No call begins under the lease from here on, also
// when Temporal cannot be told. An outcome that is not ok, error or close is CodeInvalid; "" is ok.
func (g *Gateway) Checkin(ctx context.Context, id string, outcome tempool.Outcome, reason string) (tempool.CheckinResult, error) {
	switch outcome {
	case "":
		outcome = tempool.OutcomeOK
	case tempool.OutcomeOK, tempool.OutcomeError, tempool.OutcomeClose:
	default:
		return tempool.CheckinResult{}, tempool.Errorf(tempool.CodeInvalid, "outcome is %q; it must be ok, error or close", outcome)
	}
	if err := g.foreign(id); err != nil {
		return tempool.CheckinResult{}, err
	}
	request := tempool.CheckinRequest{LeaseID: id, Outcome: outcome, Error: reason}
	if ref, err := tempool.ParseLeaseID(id); err == nil {
		if s := g.seatFor(ref); s != nil {
			if request, err = s.release(ctx, ref, request); err != nil {
				return tempool.CheckinResult{}, err
			}
		}
	}
	return g.config.Control.CheckinNow(ctx, request)
}

// release ends the grant, waits for its calls, and adds what was counted under it.
func (s *seat) release(ctx context.Context, ref tempool.LeaseRef, r tempool.CheckinRequest) (tempool.CheckinRequest, error) {
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
		return r, tempool.Errorf(tempool.CodeDeadlineExceeded, "calls under lease %s are still in flight: %w", r.LeaseID, ctx.Err())
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	return checkinOf(gr, r.Outcome, r.Error), nil
}
