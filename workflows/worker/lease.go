package worker

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// maxGrants bounds how many request IDs are remembered.
const maxGrants = 50

// Grant remembers which lease a request got, so that the same request gets it again.
type Grant struct {
	RequestID string    `json:"request_id"`
	Lease     api.Lease `json:"lease"`
}

// Retry hints of refusals.
const (
	retryBusy     = 50 * time.Millisecond
	retryStarting = 250 * time.Millisecond
	retryOther    = time.Second
)

// recallTimeout bounds how long a checkout waits for a gateway to give an idle lease back.
const recallTimeout = time.Second

// leaseOf finds the lease that a request got before.
func (w *worker) leaseOf(requestID string) *api.Lease {
	if requestID == "" {
		return nil
	}
	for i := range w.Grants {
		if w.Grants[i].RequestID == requestID {
			return &w.Grants[i].Lease
		}
	}
	return nil
}

// refusal says why no lease can be had now, or nil. It changes nothing, so validators may use it.
func (w *worker) refusal(r api.CheckoutRequest) *api.Error {
	if r.Holder == "" {
		return api.Errorf(api.CodeInvalid, "a checkout needs a holder: who uses the worker")
	}
	if longest := w.Spec.Lease.MaxTTL.D(); r.TTLMS < 0 || time.Duration(r.TTLMS)*time.Millisecond > longest {
		return api.Errorf(api.CodeInvalid, "ttl_ms is %d; it must be from 0 (the default) to %d, which is lease.max_ttl", r.TTLMS, longest.Milliseconds())
	}
	if w.overLength() {
		return api.Errorf(api.CodeContinuing, "%s is about to continue as new", w.name()).After(retryBusy)
	}
	if w.events.stop.wanted || w.events.drain.wanted || w.events.restart.wanted || w.SuspendWanted {
		return api.Errorf(api.CodeDraining, "%s is about to leave service", w.name()).After(retryOther)
	}
	switch w.Machine.State {
	case lifecycle.Ready:
		return nil
	case lifecycle.Busy:
		if w.Lease != nil {
			return api.Errorf(api.CodeBusy, "%s is leased to %q until %s", w.name(), w.Lease.Holder, w.Lease.ExpiresAt.Format(time.RFC3339)).After(retryBusy)
		}
		return api.Errorf(api.CodeBusy, "%s is busy", w.name()).After(retryBusy)
	case lifecycle.Degraded:
		return api.Errorf(api.CodeDegraded, "%s is degraded: %s", w.name(), w.lastReason()).After(retryOther)
	case lifecycle.Suspended:
		return api.Errorf(api.CodeSuspended, "%s is suspended: %s", w.name(), w.lastReason()).After(retryOther)
	case lifecycle.Draining, lifecycle.Stopping:
		return api.Errorf(api.CodeDraining, "%s is %s: %s", w.name(), w.Machine.State, w.lastReason()).After(retryOther)
	case lifecycle.Created, lifecycle.Pending, lifecycle.Starting:
		return api.Errorf(api.CodeStarting, "%s is %s: %s", w.name(), w.Machine.State, w.reason()).After(retryStarting)
	}
	if w.Resting {
		return api.Errorf(api.CodeFailed, "%s is down and waits for an operator's restart: %s", w.name(), w.reason()).After(retryOther)
	}
	return api.Errorf(api.CodeStarting, "%s is between two processes: %s", w.name(), w.reason()).After(retryStarting)
}

// recallable reports whether the refusal is only that a gateway keeps the worker leased, which it may give back.
func (w *worker) recallable() bool {
	return w.Machine.State == lifecycle.Busy && w.gatewayHolds()
}

// gatewayHolds reports whether the lease that is out is a gateway's.
func (w *worker) gatewayHolds() bool {
	return w.Lease != nil && strings.HasPrefix(w.Lease.Holder, api.GatewayHolderPrefix)
}

// checkout grants a lease or refuses one, at once unless a gateway's idle lease has to be recalled.
func (w *worker) checkout(ctx workflow.Context, r api.CheckoutRequest) (*api.Lease, error) {
	if lease := w.leaseOf(r.RequestID); lease != nil {
		return lease, nil
	}
	if w.drainSignals() {
		w.wakeUp() // what they asked for is to be done also when this is refused
	}
	if w.recallable() && w.refusal(r) != nil && !strings.HasPrefix(r.Holder, api.GatewayHolderPrefix) {
		w.recall(ctx)
		if lease := w.leaseOf(r.RequestID); lease != nil { // the same request, granted while this one waited
			return lease, nil
		}
	}
	if refused := w.refusal(r); refused != nil {
		return nil, failure.Refusal(refused)
	}
	return w.grant(r), nil
}

func (w *worker) recall(ctx workflow.Context) {
	id := w.Lease.ID
	options := w.onHost("recall lease "+id, recallTimeout)
	options.toStart = recallTimeout
	future := execute(w.ctx, api.ActivityRecall, options, api.RecallRequest{Process: w.process(), LeaseID: id})
	var result api.RecallResult
	if err := future.Get(ctx, &result); err != nil || !result.Returned {
		return // the gateway uses it, or did not answer: the caller is refused as busy
	}
	if result.Checkin != nil {
		w.checkin(*result.Checkin)
	}
}

func (w *worker) grant(r api.CheckoutRequest) *api.Lease {
	now := w.now()
	w.LeaseSeq++
	lease := api.Lease{
		ID:     api.LeaseID(w.Pool, w.Slot, w.Machine.Incarnation, w.LeaseSeq),
		Worker: w.name(), Seq: w.LeaseSeq, Incarnation: w.Machine.Incarnation,
		Holder: r.Holder, Session: r.Session,
		Host: w.Process.Host, Endpoint: w.Process.Endpoint, Address: w.Process.Address,
		GrantedAt: now, ExpiresAt: now.Add(w.ttl(r.TTLMS)),
	}
	w.transition(lifecycle.Checkout, fmt.Sprintf("leased to %q", r.Holder), nil)
	w.Lease = &lease
	w.Counters.LeasesGranted++
	w.Counters.LastGrantAt = now
	if r.RequestID != "" {
		w.Grants = append(w.Grants, Grant{r.RequestID, lease})
		if excess := len(w.Grants) - maxGrants; excess > 0 {
			w.Grants = append([]Grant(nil), w.Grants[excess:]...)
		}
	}
	w.wakeUp()
	return &lease
}

func (w *worker) ttl(ms int64) time.Duration {
	if ms == 0 {
		return w.Spec.Lease.TTL.D()
	}
	return time.Duration(ms) * time.Millisecond
}

// staleLease says why a lease is not the one that is out, or nil.
func (w *worker) staleLease(leaseID string) *api.Error {
	ref, err := api.ParseLeaseID(leaseID)
	if err != nil || ref.Pool != w.Pool || ref.Slot != w.Slot {
		return api.Errorf(api.CodeLeaseNotFound, "%s has never granted a lease %q", w.name(), leaseID)
	}
	if w.Lease == nil || w.Lease.ID != leaseID {
		return api.Errorf(api.CodeLeaseFenced, "lease %s on %s has ended; check out again", leaseID, w.name())
	}
	return nil
}

func (w *worker) renewRefusal(r api.RenewRequest) *api.Error {
	if w.isDrainingLease(r.LeaseID) {
		return api.Errorf(api.CodeDraining, "the process of lease %s is being replaced; finish what is in flight and check in", r.LeaseID)
	}
	if stale := w.staleLease(r.LeaseID); stale != nil {
		return stale
	}
	if longest := w.Spec.Lease.MaxTTL.D(); r.TTLMS < 0 || time.Duration(r.TTLMS)*time.Millisecond > longest {
		return api.Errorf(api.CodeInvalid, "ttl_ms is %d; it must be from 0 (the default) to %d, which is lease.max_ttl", r.TTLMS, longest.Milliseconds())
	}
	if w.Machine.State != lifecycle.Busy {
		return api.Errorf(api.CodeDraining, "%s is %s; finish what is in flight and check in", w.name(), w.Machine.State)
	}
	return nil
}

func (w *worker) renew(_ workflow.Context, r api.RenewRequest) (*api.Lease, error) {
	if refused := w.renewRefusal(r); refused != nil {
		return nil, failure.Refusal(refused)
	}
	w.Lease.ExpiresAt = w.now().Add(w.ttl(r.TTLMS))
	w.wakeUp()
	return w.Lease, nil
}

// checkin gives the lease back. One with an old lease ID, or an unknown outcome, changes nothing and is counted.
func (w *worker) checkin(r api.CheckinRequest) {
	if w.checkinDraining(r) {
		w.wakeUp()
		return
	}
	if stale := w.staleLease(r.LeaseID); stale != nil {
		w.refuse("checkin: " + stale.Message)
		return
	}
	kind, reason := lifecycle.Checkin, fmt.Sprintf("%q gave lease %s back", w.Lease.Holder, w.Lease.ID)
	switch r.Outcome {
	case api.OutcomeOK, "":
		w.LeaseErrors = 0
	case api.OutcomeError:
		w.LeaseErrors++
		kind, reason = lifecycle.CheckinError, fmt.Sprintf("%s as failed: %s (failure %d of %d)", reason, r.Error, w.LeaseErrors, w.Spec.Health.MaxFailures)
		if w.LeaseErrors >= w.Spec.Health.MaxFailures {
			kind = lifecycle.Unhealthy
		}
	case api.OutcomeClose:
		kind, reason = lifecycle.CheckinClose, reason+" and asked for a new process"
		if r.Error != "" {
			reason += ": " + r.Error
		}
	default:
		w.refuse(fmt.Sprintf("checkin: outcome is %q; it must be ok, error or close", r.Outcome))
		return
	}
	w.countUsage(r.Usage, w.Machine.Incarnation)
	w.Lease = nil
	if w.Machine.State == lifecycle.Busy {
		switch kind {
		case lifecycle.CheckinClose:
			w.Cause = api.CauseLease
			w.setIntent(IntentReplace, reason)
		case lifecycle.Unhealthy:
			w.Cause = api.CauseUnhealthy
		}
		w.transition(kind, reason, nil)
	}
	w.wakeUp()
}

// endLease drops the lease with the process it was for; its holder is fenced.
func (w *worker) endLease() { w.Lease = nil }

// expireLease replaces a worker whose lease has expired, or has it reset, as lease.on_expiry says.
func (w *worker) expireLease() bool {
	if w.Lease == nil || w.now().Before(w.Lease.ExpiresAt) {
		return false
	}
	if w.Spec.Lease.OnExpiry == spec.ExpiryReset {
		w.startReset()
		return true
	}
	workflow.GetLogger(w.ctx).Warn("a lease has expired", "worker", w.name(), "lease", w.Lease.ID, "holder", w.Lease.Holder)
	reason := fmt.Sprintf("lease %s of %q expired; what state it left is unknown", w.Lease.ID, w.Lease.Holder)
	w.Cause = api.CauseLease
	w.setIntent(IntentReplace, reason)
	w.transition(lifecycle.LeaseExpired, reason, nil)
	w.endLease()
	return true
}

// ensureLeaseTimer keeps the one timer that serves lease expiry. It is armed with an incarnation and for as long as leases
// come and go, not per lease, so that a lease writes no timer events; only a lease shorter than the timer moves it.
func (w *worker) ensureLeaseTimer() {
	ttl := w.Spec.Lease.TTL.D()
	switch {
	case w.Lease != nil && (w.tasks.lease == nil || w.Lease.ExpiresAt.Before(w.tasks.leaseCheckAt)):
		loop.CancelTask(&w.tasks.lease)
		w.armLeaseTimer(max(0, w.Lease.ExpiresAt.Sub(w.now())))
	case w.Lease == nil && w.tasks.lease == nil && w.now().Sub(w.Counters.LastGrantAt) < ttl:
		w.armLeaseTimer(ttl)
	}
}

func (w *worker) armLeaseTimer(after time.Duration) {
	w.tasks.leaseCheckAt = w.now().Add(after)
	w.timer(&w.tasks.lease, &w.events.leaseTimer, timerOptions{after, "is a lease overdue?"})
}

// refuse counts and records something that was asked and not done.
func (w *worker) refuse(what string) {
	w.Counters.LeasesRefused++
	w.LastRefusal = w.now().UTC().Format(time.RFC3339) + " " + what
	workflow.GetLogger(w.ctx).Info("refused", "worker", w.name(), "what", what)
}

// wakeUp wakes the loop after a handler changed something it has to see.
func (w *worker) wakeUp() { w.wake.SendAsync(true) }
