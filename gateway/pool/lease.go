package pool

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/internal/tracecontext"
)

// Renew extends a client's lease to ttlMS milliseconds from now; 0 means the spec's lease.ttl.
func (d *Dispatcher) Renew(ctx context.Context, id string, a lease.Authority, ttlMS int64) (*api.Lease, error) {
	if invalid := api.CheckTTL(ttlMS); invalid != nil {
		return nil, invalid
	}
	ref, err := d.clientLease(id, a)
	if err != nil {
		return nil, err
	}
	named := id
	if a.Token() != "" { // the workflow compares it if this gateway could not
		named += "~" + a.Token()
	}
	sent := time.Now()
	ctx, span := d.traceLease(ctx, "renew", ref.Worker(), ref.Incarnation)
	lease, err := d.config.Control.Renew(ctx, named, time.Duration(ttlMS)*time.Millisecond)
	tracecontext.End(span, err)
	if err != nil {
		return nil, err
	}
	d.locked(ref.Worker(), ref.Incarnation, func(u *upstream) {
		if !u.leases.Overtaken(ref, sent) {
			u.pool.adoptForLocked(*lease, "", sent)
		}
	})
	return lease, nil
}

// RenewHeld is Renew, as the operator, of a lease that must have this holder: whoever has named it may be wrong.
func (d *Dispatcher) RenewHeld(ctx context.Context, id, holder string) (*api.Lease, error) {
	ref, err := api.ParseLeaseID(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	state, err := d.verifier.State(ctx, id, ref)
	if err == nil && (state.Lease == nil || state.Lease.ID != id || state.Lease.Holder != holder) {
		err = lease.ErrForbidden(id)
	}
	if err != nil {
		return nil, err
	}
	return d.Renew(ctx, id, lease.Operator, 0)
}

// clientLease parses the id of a lease. It rejects callers without the authority for the lease, as far as this gateway
// knows the lease.
func (d *Dispatcher) clientLease(id string, a lease.Authority) (api.LeaseRef, error) {
	ref, err := api.ParseLeaseID(id)
	if err != nil {
		return ref, err
	}
	if !a.Claims() {
		return ref, lease.ErrForbidden(id)
	}
	d.locked(ref.Worker(), ref.Incarnation, func(u *upstream) {
		if l := u.lease; l != nil && l.ref == ref && !a.Opens(l.key) {
			err = lease.ErrForbidden(id)
		}
	})
	return ref, err
}

// Checkin returns a client's lease with the usage counted under it. No call starts under the lease from then on, of one
// that was used here even if Temporal does not answer. The outcome is ok, error or close, "" for ok; any other is
// CodeInvalid.
func (d *Dispatcher) Checkin(ctx context.Context, id string, a lease.Authority, outcome api.Outcome,
	reason string) (api.CheckinResult, error) {
	switch outcome {
	case "":
		outcome = api.OutcomeOK
	case api.OutcomeOK, api.OutcomeError, api.OutcomeClose:
	default:
		return api.CheckinResult{}, api.Errorf(api.CodeInvalid, "outcome is %q; it must be ok, error or close", outcome)
	}
	ref, err := d.clientLease(id, a)
	if err != nil {
		return api.CheckinResult{}, err
	}
	request := api.CheckinRequest{LeaseID: id, Outcome: outcome, Error: reason}
	if u := d.upstreamFor(ref); u != nil {
		var ended bool
		if request, ended, err = u.endClientLease(ctx, ref, a, request); err != nil {
			return api.CheckinResult{}, err
		}
		if ended {
			defer u.checkedIn()
		}
	}
	request.TokenHash = api.HashLeaseToken(a.Token())
	ctx, span := d.traceLease(ctx, "checkin", ref.Worker(), ref.Incarnation)
	result, err := d.config.Control.CheckinNow(ctx, request)
	tracecontext.End(span, err)
	if err == nil {
		d.returned(ref, a)
	} else if mayBeLost(err) {
		d.work.Go(func() { d.checkinLater(ref, a, request) })
	}
	return result, err
}

// checkedIn lets clients ask for the worker again: the workflow has the checkin, or does not answer.
func (u *upstream) checkedIn() {
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	u.returning = false
	u.openedLocked()
}

// mayBeLost reports whether Temporal may not have what failed with err: it has not answered in time, or has refused it
// for its rate limit.
func mayBeLost(err error) bool {
	code := api.CodeOf(err)
	return err != nil && (code == "" || code == api.CodeUnavailable || code == api.CodeBusy)
}

// checkinLater passes a checkin on that Temporal has not accepted, until it has, or its lease has long expired.
func (d *Dispatcher) checkinLater(ref api.LeaseRef, a lease.Authority, r api.CheckinRequest) {
	ctx, cancel := context.WithTimeout(d.life, checkinRetries)
	defer cancel()
	for pause := checkinRetry; sleep.For(ctx.Done(), pause); pause = min(2*pause, longestCheckinRetry) {
		attempt, done := context.WithTimeout(ctx, controlTimeout)
		attempt, span := d.traceLease(attempt, "checkin", ref.Worker(), ref.Incarnation)
		err := d.config.Control.Checkin(attempt, r)
		tracecontext.End(span, err)
		done()
		if err == nil {
			d.returned(ref, a)
		}
		if !mayBeLost(err) {
			return
		}
	}
}

const (
	// checkinRetry is the pause before an attempt to pass on a checkin, twice as long before the next one, up to
	// longestCheckinRetry, and checkinRetries the time of all of them.
	checkinRetry        = 500 * time.Millisecond
	longestCheckinRetry = 8 * time.Second
	checkinRetries      = 10 * time.Minute
)

// CheckedIn records that Temporal has the checkin of a client's lease: no call starts under it, and the worker goes to
// a waiting client. It changes nothing for a lease that does not count here.
func (d *Dispatcher) CheckedIn(id string, a lease.Authority) error {
	ref, err := d.clientLease(id, a)
	if err == nil {
		d.returned(ref, a)
	}
	return err
}

// expired reports whether the lease is the one that counts, and its time is over.
func (u *upstream) expired(ref api.LeaseRef) bool {
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	return u.leases.Held == ref && !time.Now().Before(u.leases.Expires)
}

// returned makes the worker of a client's lease available to those who wait, once Temporal has its checkin. Temporal
// accepts that of any number, and the lease may have come to count here since clientLease.
func (d *Dispatcher) returned(ref api.LeaseRef, a lease.Authority) {
	d.locked(ref.Worker(), ref.Incarnation, func(u *upstream) {
		now := time.Now()
		if soon := now.Add(returnedQuestion); u.lease == nil && soon.Before(u.retryAt) {
			u.retryAt = soon // the next in line may have been refused for a lease that was not used here
		}
		if u.answered.ref == ref && (a.Token() == "" || a.Opens(u.answered.key)) { // an operator ends any
			u.answered.returned = true
		}
		proved := u.lease != nil && a.Opens(u.lease.key)
		u.setLeasesLocked(u.leases.Returned(ref, proved, u.underLocked(u.lease), now), "it was checked in")
	})
}

// CheckinAbandoned returns a lease whose client disconnected before it got it, or logs why it could not. Of the
// client's ctx it uses the trace.
func (d *Dispatcher) CheckinAbandoned(client context.Context, id string) {
	ctx, cancel := context.WithTimeout(d.life, controlTimeout)
	defer cancel()
	if _, err := d.Checkin(ctx, id, lease.Operator, api.OutcomeOK, ""); err != nil {
		tracecontext.Logger(client, d.config.Logger).Warn(
			"could not return the lease of a disconnected client; it will expire", "lease", id, "error", err)
	}
}

// endClientLease lets no further call start under the lease, waits for those in flight, returns the lease, and adds its
// usage to the checkin; ended says that checkedIn must follow. The workflow decides about one that does not count here,
// or whose token this is not.
func (u *upstream) endClientLease(ctx context.Context, ref api.LeaseRef, a lease.Authority,
	r api.CheckinRequest) (_ api.CheckinRequest, ended bool, err error) {
	u.pool.mu.Lock()
	l := u.lease
	if l == nil || l.ref != ref || !a.Opens(l.key) {
		u.pool.mu.Unlock()
		return r, false, nil
	}
	u.leases = u.leases.End("it was checked in")
	u.pool.mu.Unlock()
	if err := u.pool.await(ctx, func() bool { return u.underLocked(l) == 0 }); err != nil {
		return r, false, errStillInFlight(r.LeaseID, err)
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	r = u.checkinLocked(l, r.Outcome, r.Error)
	if ended = u.lease == l; ended { // opens the worker unless the checkin has it degraded or replaced
		u.returning = true
		u.setLeasesLocked(u.leases.Return(l.ref, r.Outcome == api.OutcomeOK), "it was checked in")
	}
	return r, ended, nil
}

func errStillInFlight(leaseID string, cause error) *api.Error {
	return api.Errorf(api.CodeDeadlineExceeded, "calls under lease %s are still in flight: %w", leaseID, cause)
}

// verifications bounds the questions about one lease: whoever makes numbers up must not keep it from its holder. After
// the last one, only a checkin with the right to the lease counts, which the answers before have shown.
const verifications = 3

// verifyAndStart asks the workflow whether the lease counts and starts the call if it does. One call per worker asks at
// a time; the others use its answer.
func (d *Dispatcher) verifyAndStart(c *Call, t *Target) error {
	u, id, ref := t.upstream, t.leaseID, t.ref
	select {
	case <-u.verifying:
		defer func() { u.verifying <- struct{}{} }()
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	if _, admission, err := u.pool.tryStart(c, t); admission != unverified {
		return err
	}
	if err := d.verifier.Cached(id, time.Now()); err != nil {
		return err
	}
	for left, overtaken := verifications, true; left > 0 && overtaken; left-- {
		now := time.Now()
		state, err := d.verifier.State(c.ctx, id, ref)
		if api.CodeOf(err) == api.CodeUnavailable && u.expired(ref) {
			return errExpired(id)
		}
		if err != nil {
			return err
		}
		d.clock.Observe(state.AsOf, time.Now())
		if err := lease.Confirm(id, ref, state); err != nil {
			return d.verifier.Cache(id, err, now)
		}
		expires := d.clock.ExpiryOf(*state.Lease, now)
		if !time.Now().Before(expires) {
			return api.Errorf(api.CodeLeaseFenced, "lease %s has expired; renew a lease before it expires", id)
		}
		u.pool.mu.Lock()
		if overtaken = u.leases.Overtaken(ref, now) && (left > 1 || u.answered.returned); !overtaken {
			u.adoptLocked(*state.Lease, ref, expires)
		}
		u.answered = answered{ref: ref, key: lease.KeyOf(*state.Lease)}
		u.pool.mu.Unlock()
	}
	if _, admission, err := u.pool.tryStart(c, t); admission != unverified {
		return err
	}
	return api.Errorf(api.CodeLeaseFenced, "lease %s ended while it was verified; check out again", id)
}
