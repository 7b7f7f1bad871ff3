package worker

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/failure"
)

// maxGrants bounds how many request IDs are remembered.
const maxGrants = 50

// maxWithdrawn bounds how many withdrawn checkouts are remembered: a checkout reaches the worker soon after its
// withdrawal, or never.
const maxWithdrawn = 20

// Retry hints of refusals.
const (
	retryBusy     = 50 * time.Millisecond
	retryStarting = 250 * time.Millisecond
	retryOther    = time.Second
)

// leases grants, renews, expires and takes back the lease on the worker.
type leases struct {
	*worker
	timerAt time.Time // when the lease timer fires
	renewed bool      // since ensureTimer looked
}

// repeated is the answer to a request that its holder has made before: the lease that it got, if the lease lives, else
// why it gets none. Both are nil for a new request.
func (l *leases) repeated(r api.CheckoutRequest) (*api.Lease, *api.Error) {
	if r.RequestID == "" {
		return nil, nil
	}
	for i := range l.Grants {
		lease := &l.Grants[i].Lease
		switch {
		case l.Grants[i].RequestID != r.RequestID || lease.Holder != r.Holder || lease.TokenHash != r.TokenHash:
		case l.Lease != nil && l.Lease.ID == lease.ID && l.Now().Before(l.Lease.ExpiresAt):
			return l.leaseAt(l.Now()), nil
		case l.surge.drainingLease(lease.ID) != nil:
			return lease, nil
		default:
			return nil, api.Errorf(api.CodeLeaseFenced,
				"lease %s, granted for this request_id, has ended; use a new request_id for each checkout", lease.ID)
		}
	}
	return nil, nil
}

// leaseAt is the current lease with the time that it lasts from now.
func (l *leases) leaseAt(now time.Time) *api.Lease {
	if l.Lease == nil {
		return nil
	}
	lease := *l.Lease
	lease.TTLMS = max(1, lease.ExpiresAt.Sub(now).Milliseconds())
	return &lease
}

// refusal is why a checkout gets no lease now, or nil. It changes nothing, so validators may call it.
func (l *leases) refusal(r api.CheckoutRequest) *api.Error {
	if invalid := r.Validate(); invalid != nil {
		return invalid
	}
	if slices.Contains(l.Withdrawn, r.AttemptID) {
		return api.Errorf(api.CodeCancelled, "the caller withdrew this checkout")
	}
	if err := l.ttlRefusal(r.TTLMS); err != nil {
		return err
	}
	if l.HasOrders() {
		return api.Errorf(api.CodeBusy, "%s has an order to carry out first", l.name()).After(retryBusy)
	}
	if l.IsOverdue() {
		return api.Errorf(api.CodeContinuing, "%s is about to continue as new", l.name()).After(retryBusy)
	}
	if l.isRequested(api.SignalStop) || l.isRequested(api.SignalDrain) || l.isRequested(api.SignalRestart) {
		return api.Errorf(api.CodeDraining, "%s is about to leave service", l.name()).After(retryOther)
	}
	if l.SuspendWanted && l.Machine.State.InService() {
		return api.Errorf(api.CodeSuspended, "%s is being suspended: %s", l.name(), l.SuspendReason).After(retryOther)
	}
	switch l.Machine.State {
	case lifecycle.Ready:
		return nil
	case lifecycle.Busy:
		if l.Lease != nil {
			return api.Errorf(api.CodeBusy, "%s is leased to %q until %s", l.name(), l.Lease.Holder,
				l.Lease.ExpiresAt.Format(time.RFC3339)).After(retryBusy)
		}
		return api.Errorf(api.CodeBusy, "%s is busy", l.name()).After(retryBusy)
	case lifecycle.Degraded:
		return api.Errorf(api.CodeDegraded, "%s is degraded: %s", l.name(), l.lastReason()).After(retryOther)
	case lifecycle.Suspended:
		return api.Errorf(api.CodeSuspended, "%s is suspended: %s", l.name(), l.lastReason()).After(retryOther)
	case lifecycle.Draining, lifecycle.Stopping:
		return api.Errorf(api.CodeDraining, "%s is %s: %s", l.name(), l.Machine.State, l.lastReason()).After(retryOther)
	case lifecycle.Created, lifecycle.Pending, lifecycle.Starting:
		return api.Errorf(api.CodeStarting, "%s is %s: %s", l.name(), l.Machine.State, l.reason()).After(retryStarting)
	}
	if l.Resting {
		return api.Errorf(api.CodeFailed, "%s is down until an operator restarts it: %s", l.name(),
			l.reason()).After(retryOther)
	}
	return api.Errorf(api.CodeStarting, "%s is between two processes: %s", l.name(), l.reason()).After(retryStarting)
}

func (l *leases) ttlRefusal(ms int64) *api.Error {
	if longest := l.Spec.Lease.MaxTTL.D().Milliseconds(); ms < 0 || ms > longest {
		return api.Errorf(api.CodeInvalid, "ttl_ms is %d; it must be from 0 (the default) to %d (lease.max_ttl)", ms, longest)
	}
	return nil
}

// validateCheckout refuses a checkout before it costs history events. It lets one pass that waits behind signals: an
// update handler runs before the loop, so a checkin in the same workflow task is not handled yet.
func (l *leases) validateCheckout(r api.CheckoutRequest) *api.Error {
	if invalid := r.Validate(); invalid != nil {
		return invalid
	}
	if lease, ended := l.repeated(r); lease != nil || ended != nil {
		return ended
	}
	if l.HasSignals() {
		return nil
	}
	return l.refusal(r)
}

// checkout grants or refuses a lease, at once.
func (l *leases) checkout(_ workflow.Context, r api.CheckoutRequest) (*api.Lease, error) {
	lease, ended := l.repeated(r)
	switch {
	case ended != nil:
		return nil, failure.Refusal(ended)
	case lease != nil: // it is this attempt's now: an earlier one can no longer withdraw it
		l.Grants[slices.IndexFunc(l.Grants, func(g Grant) bool { return g.Lease.ID == lease.ID })].AttemptID = r.AttemptID
		return lease, nil
	}
	if l.DrainMessages() {
		l.WakeUp() // reconcile carries out what the signals requested even if this checkout is refused
	}
	if refused := l.refusal(r); refused != nil {
		l.emitRefusal(api.UpdateCheckout, r.Holder, "", refused)
		return nil, failure.Refusal(refused)
	}
	return l.grant(r), nil
}

// checkoutSignal grants a lease, or records why not. The caller reads the lease from the query state.
func (l *leases) checkoutSignal(r api.CheckoutRequest) {
	lease, refused := l.repeated(r)
	if lease != nil {
		return
	}
	if refused == nil {
		refused = l.refusal(r)
	}
	if refused != nil {
		l.emitRefusal(api.UpdateCheckout, r.Holder, "", refused)
		l.refuse("checkout: " + refused.Message)
		return
	}
	l.grant(r)
}

// withdraw returns the lease of a checkout whose caller left without the answer and so never used it. A checkout that
// comes later is refused.
func (l *leases) withdraw(r api.Withdrawal) {
	if r.AttemptID == "" || len(r.AttemptID) > api.MaxRequestIDBytes {
		l.refuse(fmt.Sprintf("withdraw a checkout: attempt_id has %d bytes; it must have 1 to %d", len(r.AttemptID),
			api.MaxRequestIDBytes))
		return
	}
	i := slices.IndexFunc(l.Grants, func(g Grant) bool { return g.AttemptID == r.AttemptID })
	if i < 0 {
		l.Withdrawn = append(l.Withdrawn, r.AttemptID)
		l.Withdrawn = slices.Delete(l.Withdrawn, 0, max(0, len(l.Withdrawn)-maxWithdrawn))
		return
	}
	lease := l.Grants[i].Lease
	l.Grants = slices.Delete(l.Grants, i, i+1)
	l.checkin(api.CheckinRequest{LeaseID: lease.ID, TokenHash: lease.TokenHash, Outcome: api.OutcomeOK})
}

func (l *leases) grant(r api.CheckoutRequest) *api.Lease {
	now := l.Now()
	l.LeaseSeq = l.nextSeq()
	lease := api.Lease{
		ID:     api.LeaseID(l.Pool, l.Slot, l.Machine.Incarnation, l.LeaseSeq),
		Worker: l.name(), Seq: l.LeaseSeq, Incarnation: l.Machine.Incarnation,
		Holder: r.Holder, Session: r.Session,
		Host: l.Process.Host, Endpoint: l.Process.Endpoint, Address: l.Process.Address,
		GrantedAt: now, ExpiresAt: now.Add(l.ttl(r.TTLMS)), TTLMS: l.ttl(r.TTLMS).Milliseconds(), TokenHash: r.TokenHash,
	}
	l.apply(lifecycle.Event{
		Kind: lifecycle.Checkout, Reason: fmt.Sprintf("lease %s granted to %q", lease.ID, r.Holder),
		Metadata: leaseMetadata(&lease),
	})
	l.Lease = &lease
	l.emit(api.EventLeaseGranted, "")
	l.Counters.LeasesGranted++
	l.Counters.LastGrantAt = now
	if r.RequestID != "" || r.AttemptID != "" {
		l.Grants = append(l.Grants, Grant{r.RequestID, r.AttemptID, lease})
		l.Grants = slices.Delete(l.Grants, 0, max(0, len(l.Grants)-maxGrants))
	}
	l.WakeUp()
	return &lease
}

func (l *leases) ttl(ms int64) time.Duration {
	if ms == 0 {
		return l.Spec.Lease.TTL.D()
	}
	return time.Duration(ms) * time.Millisecond
}

// stale is why leaseID is not the current lease, or nil.
func (l *leases) stale(leaseID string) *api.Error {
	ref, err := api.ParseLeaseID(leaseID)
	if err != nil || ref.Pool != l.Pool || ref.Slot != l.Slot {
		return api.Errorf(api.CodeLeaseNotFound, "%s has never granted a lease %q", l.name(), leaseID)
	}
	if l.Lease == nil || l.Lease.ID != leaseID {
		return api.Errorf(api.CodeLeaseFenced, "lease %s on %s has ended; check out again", leaseID, l.name())
	}
	return nil
}

func (l *leases) renewRefusal(r api.RenewRequest) *api.Error {
	if l.surge.drainingLease(r.LeaseID) != nil {
		return api.Errorf(api.CodeDraining,
			"the process of lease %s is being replaced; finish the calls in flight and check in", r.LeaseID)
	}
	if stale := l.stale(r.LeaseID); stale != nil {
		return stale
	}
	if forbidden := l.Lease.CheckTokenHash(r.TokenHash); forbidden != nil {
		return forbidden
	}
	if err := l.ttlRefusal(r.TTLMS); err != nil {
		return err
	}
	if l.SuspendWanted {
		return api.Errorf(api.CodeSuspended, "%s is being suspended: %s; finish the calls in flight and check in", l.name(),
			l.SuspendReason)
	}
	if l.Machine.State != lifecycle.Busy {
		return api.Errorf(api.CodeDraining, "%s is %s; finish the calls in flight and check in", l.name(), l.Machine.State)
	}
	return nil
}

func (l *leases) renew(_ workflow.Context, r api.RenewRequest) (*api.Lease, error) {
	if refused := l.renewRefusal(r); refused != nil {
		l.emitRefusal(api.UpdateRenew, "", r.LeaseID, refused)
		return nil, failure.Refusal(refused)
	}
	l.Lease.ExpiresAt, l.Lease.TTLMS = l.Now().Add(l.ttl(r.TTLMS)), l.ttl(r.TTLMS).Milliseconds()
	l.emit(api.EventLeaseRenewed, "")
	l.renewed = true
	l.WakeUp()
	return l.Lease, nil
}

// checkin ends the lease. One with an old lease ID, or an unknown outcome, changes nothing and is counted.
func (l *leases) checkin(r api.CheckinRequest) {
	refused := l.checkinForbidden(r)
	if refused == nil && l.surge.checkinDraining(r) {
		l.WakeUp()
		return
	}
	if refused = cmp.Or(refused, l.stale(r.LeaseID)); refused != nil {
		l.emitRefusal(api.UpdateCheckin, "", r.LeaseID, refused)
		l.refuse("checkin: " + refused.Message)
		return
	}
	kind, reason := lifecycle.Checkin, fmt.Sprintf("lease %s released by %q", l.Lease.ID, l.Lease.Holder)
	switch r.Outcome {
	case api.OutcomeOK, "":
		l.LeaseErrors = 0
		if l.DegradeReason != "" {
			kind, reason = lifecycle.CheckinError, reason+"; "+l.DegradeReason
		}
	case api.OutcomeError:
		l.LeaseErrors++
		kind = lifecycle.CheckinError
		reason += fmt.Sprintf(" with an error: %s (failure %d of %d)", display.Shorten(r.Error), l.LeaseErrors,
			l.Spec.Health.MaxFailures)
		if l.LeaseErrors >= l.Spec.Health.MaxFailures {
			kind = lifecycle.Unhealthy
		}
	case api.OutcomeClose:
		kind, reason = lifecycle.CheckinClose, reason+", which requested a new process"
		if r.Error != "" {
			reason += ": " + display.Shorten(r.Error)
		}
	default:
		l.refuse(fmt.Sprintf("checkin: outcome is %q; it must be ok, error or close", r.Outcome))
		return
	}
	metadata := leaseMetadata(l.Lease)
	if r.Outcome == api.OutcomeError {
		metadata["error"], metadata["failure_count"] = display.Shorten(r.Error), strconv.Itoa(l.LeaseErrors)
	}
	l.countUsage(r.Usage, l.Machine.Incarnation)
	l.emitRelease(l.Lease, r)
	l.Lease, l.DegradeReason = nil, ""
	if l.Machine.State == lifecycle.Busy {
		switch kind {
		case lifecycle.CheckinClose:
			l.endIncarnation(api.CauseLease, IntentReplace, reason)
		case lifecycle.Unhealthy:
			l.endIncarnation(api.CauseUnhealthy, IntentRecover, reason)
		}
		l.apply(lifecycle.Event{Kind: kind, Reason: reason, Metadata: metadata})
	}
	l.WakeUp()
}

// takeBack ends the lease that the pool has taken to stop the worker. The pool does not need the worker any more: calls
// in flight may take as long as calls may.
func (l *leases) takeBack(id string) {
	if l.Lease != nil && l.Lease.ID == id {
		longest := max(l.Spec.Rotation.DrainTimeout.D(), l.Spec.Call.Timeout.D())
		l.Process.DrainUntil = l.Now().Add(longest)
		l.checkin(api.CheckinRequest{LeaseID: id, TokenHash: l.Lease.TokenHash, Outcome: api.OutcomeOK})
	}
}

// fence ends the lease without its holder.
func (l *leases) fence(reason string, usage api.Usage) {
	l.countUsage(usage, l.Machine.Incarnation)
	l.emitEnd(reason)
	metadata := leaseMetadata(l.Lease)
	l.Lease, l.DegradeReason = nil, ""
	l.apply(lifecycle.Event{Kind: lifecycle.Checkin, Reason: reason, Metadata: metadata})
}

// leaseMetadata is a lease as the data of a transition.
func leaseMetadata(lease *api.Lease) map[string]string {
	data := map[string]string{"lease_id": lease.ID, "holder": lease.Holder}
	if lease.Session != "" {
		data["session"] = lease.Session
	}
	return data
}

// checkinForbidden is why the sender of a checkin may not return the lease that it names, or nil.
func (l *leases) checkinForbidden(r api.CheckinRequest) *api.Error {
	if d := l.surge.drainingLease(r.LeaseID); d != nil {
		return d.Lease.CheckTokenHash(r.TokenHash)
	}
	if l.Lease != nil && l.Lease.ID == r.LeaseID {
		return l.Lease.CheckTokenHash(r.TokenHash)
	}
	return nil // stale, which checkin reports
}

// expire replaces or resets a worker whose lease has expired, as lease.on_expiry says.
func (l *leases) expire() bool {
	// a suspension ends the lease that it lets nobody renew
	if l.Lease == nil || l.SuspendWanted || l.Now().Before(l.Lease.ExpiresAt) {
		return false
	}
	if l.Spec.Lease.OnExpiry == spec.ExpiryReset {
		l.startReset()
		return true
	}
	workflow.GetLogger(l.Ctx).Warn("lease expired", "worker", l.name(), "lease", l.Lease.ID, "holder", l.Lease.Holder)
	reason := fmt.Sprintf("lease %s of %q expired; the state of the process is unknown", l.Lease.ID, l.Lease.Holder)
	l.endIncarnation(api.CauseLease, IntentReplace, reason)
	l.apply(lifecycle.Event{Kind: lifecycle.LeaseExpired, Reason: reason, Metadata: leaseMetadata(l.Lease)})
	l.emit(api.EventLeaseExpired, reason)
	l.Lease = nil
	return true
}

// ensureTimer runs the one timer that serves lease expiry. The timer spans leases, so that a lease writes no timer
// events; only a lease that expires before the timer moves it, or a renewal.
func (l *leases) ensureTimer() {
	ttl := l.Spec.Lease.TTL.D()
	movable := l.renewalMovesTimer()
	switch {
	case l.SuspendWanted:
	case l.Lease != nil && (!l.tasks.lease.Running() || l.Lease.ExpiresAt.Before(l.timerAt) || movable):
		l.tasks.lease.Cancel()
		l.armTimer(max(0, l.Lease.ExpiresAt.Sub(l.Now())))
	case l.Lease == nil && !l.tasks.lease.Running() && l.Now().Sub(l.Counters.LastGrantAt) < ttl:
		l.armTimer(ttl)
	}
}

// renewalMovesTimer reports whether the lease was renewed so late that the timer would fire before the next renewal.
// Moving it takes two events in the renewal's own task; letting it fire takes five and a task.
func (l *leases) renewalMovesTimer() bool {
	renewed := l.renewed
	l.renewed = false
	return renewed && l.Lease != nil && l.timerAt.Sub(l.Now()) <= l.Lease.TTL()*2/3
}

// timerFiresBefore reports whether the lease timer wakes the worker before a time, so that no other timer has to run
// yet.
func (l *leases) timerFiresBefore(t time.Time) bool {
	return l.tasks.lease.Running() && l.timerAt.Before(t)
}

func (l *leases) armTimer(after time.Duration) {
	l.timerAt = l.Now().Add(after)
	l.tasks.lease.Start(l.Loop, after, "lease expiry")
}
