package worker

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

func TestALeaseIsExclusiveIdempotentAndNumbered(t *testing.T) {
	s := newWorkerEnv(t)
	var again, other *workflowtest.UpdateResult
	request := api.CheckoutRequest{RequestID: "r1", Holder: "me"}
	ofAnother := api.CheckoutRequest{RequestID: "r1", Holder: "you"} // of which it is one
	first := s.UpdateAt(time.Second, api.UpdateCheckout, request)
	s.UpdateAt(30*time.Second, api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.1"})
	s.At(40*time.Second, func() {
		other, again = s.Update(api.UpdateCheckout, ofAnother), s.Update(api.UpdateCheckout, request)
	})
	s.At(41*time.Second, func() {
		require.Equal(t, lifecycle.Busy, s.state().State)
		s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1",
			Usage: api.Usage{Requests: 3, Failed: 1, TotalMS: 30}})()
	})
	ended := s.UpdateAt(42*time.Second, api.UpdateCheckout, request)
	after := s.UpdateAt(43*time.Second, api.UpdateCheckout, ofAnother)
	s.At(44*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"})) // stale: changes nothing
	s.At(45*time.Second, func() {
		require.Equal(t, "t.0.1.2", s.state().Lease.ID)
		m := s.metrics()
		require.EqualValues(t, 3, m.RequestsServed)
		require.EqualValues(t, 1, m.RequestsFailed)
		require.InDelta(t, 10, m.AvgCallTimeMS, 0.001)
		require.EqualValues(t, 2, m.LeasesGranted)
		require.EqualValues(t, 1, m.LeasesRefused)
	})
	s.runThrough(standalone())
	require.NoError(t, first.Rejected)
	require.Equal(t, "t.0.1.1", first.Value.(*api.Lease).ID)
	require.Equal(t, "t.0.1.1", again.Value.(*api.Lease).ID)
	require.True(t, again.Value.(*api.Lease).ExpiresAt.After(first.Value.(*api.Lease).GrantedAt.Add(80*time.Second)),
		"with its renewed expiry")
	requireRefused(t, ended, api.CodeLeaseFenced)
	require.Equal(t, "t.0.1.2", after.Value.(*api.Lease).ID)
	var hint api.RefusalDetails
	require.NoError(t, workflowtest.RequireCode(t, other.Rejected, api.CodeBusy).Details(&hint))
	require.Positive(t, hint.RetryAfterMS)
}

// A gateway renews the lease of a busy worker for hours.
func TestALeaseTimerMovesWithRenewals(t *testing.T) {
	s := newWorkerEnv(t)
	var fired []time.Duration
	s.At(time.Second, func() {
		s.env.SetOnTimerFiredListener(func(string) { fired = append(fired, s.env.Now().Sub(s.Begin)) })
		s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"})()
	})
	for at := 41 * time.Second; at < 4*time.Minute; at += 40 * time.Second {
		s.UpdateAt(at, api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.1"})
	}
	s.At(259*time.Second, func() {
		require.Empty(t, fired)
		require.Equal(t, lifecycle.Busy, s.state().State)
	})
	s.At(262*time.Second, func() {
		require.Len(t, fired, 1)
		require.Contains(t, s.events(), lifecycle.LeaseExpired)
	})
	s.runThrough(standalone())
}

// A checkout in the same workflow task as signals reads them before the loop does.
func TestARefusedCheckoutWakesTheLoopForSignalsItDrained(t *testing.T) {
	env := workflowtest.NewEnvironment(nil, sdk.Options{})
	env.RegisterDelayedCallback(func() { env.SignalWorkflow(api.SignalEnd, api.Control{Reason: "new moon"}) },
		time.Second)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		run := standalone()
		w := newWorker(ctx, &run)
		w.registerSignals()
		if err := workflow.Sleep(ctx, time.Minute); err != nil {
			return err
		}
		require.True(t, w.HasSignals())
		_, err := w.leases.checkout(ctx, api.CheckoutRequest{Holder: "me"})
		require.ErrorContains(t, err, "about to leave service")
		require.True(t, w.isRequested(api.SignalDrain))
		before := w.Now()
		require.NoError(t, w.Await())
		require.Equal(t, before, w.Now(), "the loop wakes up")
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}

func TestARequestWithAnOversizedStringIsRefusedAndCostsNoState(t *testing.T) {
	s := newWorkerEnv(t)
	long := strings.Repeat("x", 900<<10)
	var refused []*workflowtest.UpdateResult
	s.At(time.Second, func() {
		for _, r := range []api.CheckoutRequest{{Holder: long}, {Holder: "me", RequestID: long},
			{Holder: "me", Session: long}} {
			refused = append(refused, s.Update(api.UpdateCheckout, r))
		}
	})
	last := func() string { return s.state().LastRefusal }
	s.At(2*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: long}))
	s.At(2100*time.Millisecond, func() { require.Less(t, len(last()), 200) })
	s.At(2200*time.Millisecond, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	for i, r := range []api.CheckinRequest{{LeaseID: long}, {LeaseID: "t.0.1.1", Outcome: api.Outcome(long)}} {
		at := 2300*time.Millisecond + time.Duration(i)*100*time.Millisecond
		s.At(at, s.signal(api.SignalCheckin, r))
		s.At(at+50*time.Millisecond, func() {
			require.Contains(t, last(), "checkin: ")
			require.Less(t, len(last()), 500)
		})
	}
	s.At(3*time.Second, s.signal(api.SignalSuspend, api.Control{Reason: long, By: long}))
	s.At(4*time.Second, func() {
		require.Len(t, refused, 3)
		for _, r := range refused {
			require.ErrorContains(t, r.Rejected, "at most 256 are allowed")
		}
		require.Nil(t, s.state().Lease)
		require.Equal(t, lifecycle.Suspended, s.state().State)
		require.Less(t, len(s.state().Reason), 2000)
	})
	s.At(5*time.Second, s.signal(api.SignalForceContinue, api.Control{}))
	s.At(6*time.Second, func() { require.Less(t, s.stateSize, 32<<10, "bytes carried to the next run") })
	s.runThrough(standalone())
	for _, e := range s.emitted {
		if data, of := e.data.(api.LeaseEvent); of {
			require.Less(t, len(data.Reason), 500, e.eventType)
		}
	}
}

func TestAWithdrawnCheckoutHoldsNoLease(t *testing.T) {
	s := newWorkerEnv(t)
	checkout := func(request, attempt string) *workflowtest.UpdateResult {
		return s.Update(api.UpdateCheckout, api.CheckoutRequest{RequestID: request, AttemptID: attempt, Holder: "me"})
	}
	withdraw := func(attempt string) { s.signal(api.SignalWithdrawCheckout, api.Withdrawal{AttemptID: attempt})() }
	var again, late *workflowtest.UpdateResult
	s.At(time.Second, func() { checkout("one", "first") })
	s.At(2*time.Second, func() { withdraw("first") })
	s.At(3*time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		again = checkout("one", "second")
	})
	s.At(4*time.Second, func() {
		require.NoError(t, again.Err, "the request may be repeated")
		require.EqualValues(t, 2, s.state().LeaseSeq)
		checkout("one", "third")
	})
	s.At(5*time.Second, func() { withdraw("second") })
	s.At(6*time.Second, func() {
		require.Equal(t, lifecycle.Busy, s.state().State, "the lease was the answer to a later attempt")
		withdraw("third")
		withdraw("late")
		s.signal(api.SignalForceContinue, api.Control{})()
	})
	s.At(7*time.Second, func() { late = checkout("two", "late") })
	s.At(8*time.Second, func() {
		require.ErrorContains(t, late.Rejected, "the caller withdrew this checkout")
		for n := range 2 * maxWithdrawn {
			withdraw(fmt.Sprint(strings.Repeat("x", api.MaxRequestIDBytes-2), n))
		}
		withdraw("")
		withdraw(strings.Repeat("x", api.MaxRequestIDBytes+1))
	})
	s.At(9*time.Second, func() {
		require.Contains(t, s.state().LastRefusal, "attempt_id has 257 bytes")
		checkout("two", "next")
	})
	s.At(10*time.Second, func() {
		require.Equal(t, lifecycle.Busy, s.state().State)
		require.EqualValues(t, 1, s.state().Incarnation)
		s.signal(api.SignalForceContinue, api.Control{})()
	})
	s.At(11*time.Second, func() { require.Less(t, s.stateSize, 32<<10, "bytes carried to the next run") })
	s.runThrough(standalone())
	require.NotContains(t, s.events(), lifecycle.LeaseExpired)
}

func TestATTLOutOfRangeIsRefused(t *testing.T) {
	s := newWorkerEnv(t)
	outOfRange := []int64{-1, (24 * time.Hour).Milliseconds() + 1, 1 << 58, math.MaxInt64} // 1 << 58 ms overflow to 0 ns
	var refused []*workflowtest.UpdateResult
	for _, ms := range outOfRange {
		refused = append(refused, s.UpdateAt(time.Second, api.UpdateCheckout, api.CheckoutRequest{Holder: "me", TTLMS: ms}))
	}
	s.UpdateAt(2*time.Second, api.UpdateCheckout, api.CheckoutRequest{Holder: "me"})
	for _, ms := range outOfRange {
		refused = append(refused,
			s.UpdateAt(3*time.Second, api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.1", TTLMS: ms}))
	}
	s.At(5*time.Second, func() { require.Equal(t, lifecycle.Busy, s.state().State) })
	s.runThrough(standalone())
	require.Len(t, refused, 2*len(outOfRange))
	for _, r := range refused {
		require.ErrorContains(t, r.Rejected, "ttl_ms is ")
	}
}

func TestALeasesTokenMustMatchIfItIsSent(t *testing.T) {
	s := newWorkerEnv(t)
	hash, other := api.HashLeaseToken("alice's secret"), api.HashLeaseToken("bob's secret")
	checkout := func(at time.Duration, hash string) *workflowtest.UpdateResult {
		return s.UpdateAt(at, api.UpdateCheckout, api.CheckoutRequest{RequestID: "1", Holder: "alice", TokenHash: hash})
	}
	const id, at = "t.0.1.1", 3 * time.Second
	taken, again := checkout(time.Second, hash), checkout(2*time.Second, hash)
	guessed, bad := checkout(2*time.Second, other), checkout(2*time.Second, "secret")
	theft := s.UpdateAt(at, api.UpdateRenew, api.RenewRequest{LeaseID: id, TokenHash: other})
	renewed := s.UpdateAt(at, api.UpdateRenew, api.RenewRequest{LeaseID: id, TokenHash: hash})
	closed := s.UpdateAt(at, api.UpdateCheckin,
		api.CheckinRequest{LeaseID: id, TokenHash: other, Outcome: api.OutcomeClose})
	s.At(at, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: id, TokenHash: other}))
	s.At(4*time.Second, func() { require.NotNil(t, s.state().Lease, "a checkin with another token changes nothing") })
	returned := s.UpdateAt(4*time.Second, api.UpdateCheckin, api.CheckinRequest{LeaseID: id, TokenHash: hash})
	s.At(5*time.Second, func() { require.Nil(t, s.state().Lease) })
	s.runThrough(standalone())
	require.Equal(t, hash, taken.Value.(*api.Lease).TokenHash)
	require.Equal(t, id, again.Value.(*api.Lease).ID)
	require.ErrorContains(t, guessed.Rejected, "alice")
	require.ErrorContains(t, bad.Rejected, "token_hash")
	require.ErrorContains(t, theft.Rejected, "another token")
	require.ErrorContains(t, closed.Rejected, "another token")
	require.NoError(t, renewed.Rejected)
	require.NoError(t, returned.Rejected)
}

func TestSequenceNumbersFollowTheTime(t *testing.T) {
	env := workflowtest.NewEnvironment(nil, sdk.Options{})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		run := standalone()
		w := newWorker(ctx, &run)
		w.LeaseSeq = 7
		require.EqualValues(t, 8, w.leases.nextSeq(), "without a pool they count")
		w.LeaseSeq = w.Now().Add(-time.Hour).UnixMilli()
		require.Equal(t, w.Now().UnixMilli(), w.leases.nextSeq(),
			"a run that was reset has forgotten the leases of the last hour")
		w.LeaseSeq = w.Now().UnixMilli()
		require.Equal(t, w.Now().UnixMilli()+1, w.leases.nextSeq())
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}
