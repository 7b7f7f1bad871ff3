package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

const suspendedLease = "t.0.1.1"

// suspending is a worker whose host answers a suspension after drain_timeout.
func suspending(s *workerEnv) Run {
	run := standalone()
	run.Spec.Rotation.DrainTimeout = spec.Duration(10 * time.Second)
	s.slow = map[string]time.Duration{api.ActivitySuspend: 10 * time.Second}
	return run
}

func TestASuspensionRefusesTheRenewalOfALeaseAndFencesIt(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "alice", TTLMS: 4000}))
	s.At(2*time.Second, s.signal(api.SignalSuspend, api.Control{Reason: "a look at it", By: "op"}))
	s.At(3*time.Second, func() { require.Equal(t, lifecycle.Busy, s.state().State) })
	renewal := s.UpdateAt(3*time.Second, api.UpdateRenew, api.RenewRequest{LeaseID: suspendedLease})
	checkout := s.UpdateAt(3*time.Second, api.UpdateCheckout, api.CheckoutRequest{Holder: "bob"})
	s.At(8*time.Second, func() {
		require.Equal(t, lifecycle.Busy, s.state().State, "the lease does not expire: it could not be renewed")
	})
	s.At(13*time.Second, func() {
		st := s.state()
		require.Equal(t, lifecycle.Suspended, st.State)
		require.Contains(t, st.Reason, "a look at it")
		require.Nil(t, st.Lease)
		require.EqualValues(t, 1, st.Incarnation)
		require.EqualValues(t, 3, s.metrics().RequestsServed)
		require.Equal(t, []lifecycle.EventKind{lifecycle.Checkout, lifecycle.Checkin, lifecycle.Suspend}, s.events()[2:])
		require.Contains(t, s.history()[3].Reason, "fenced")
		require.Zero(t, s.probes.Load())
	})
	s.At(time.Hour, s.signal(api.SignalResume, api.Control{}))
	s.At(time.Hour+time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.EqualValues(t, 1, s.probes.Load(), "it is probed first")
		require.Len(t, s.resumes, 1)
		require.Greater(t, s.resumes[0].Generation, s.suspends[0].Generation)
	})
	s.runThrough(suspending(s))
	require.Len(t, s.suspends, 1)
	requireRefused(t, renewal, api.CodeSuspended)
	requireRefused(t, checkout, api.CodeSuspended)
}

func TestALeaseThatIsReturnedEndsTheWaitOfASuspension(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "alice"}))
	s.At(2*time.Second, s.signal(api.SignalSuspend, api.Control{}))
	s.At(3*time.Second, func() {
		s.slow[api.ActivitySuspend] = time.Millisecond
		s.env.SignalWorkflow(api.SignalCheckin, api.CheckinRequest{LeaseID: suspendedLease})
	})
	s.At(4*time.Second, func() { require.Equal(t, lifecycle.Suspended, s.state().State) })
	s.runThrough(suspending(s))
	newest := s.suspends[len(s.suspends)-1]
	require.Empty(t, newest.LeaseID)
}

func TestALeaseThatIsReturnedAfterItWasFencedCostsNoSecondSuspend(t *testing.T) {
	s := newWorkerEnv(t)
	s.onSuspend = func(r api.SuspendRequest) (api.SuspendResult, error) {
		return api.SuspendResult{FencedLease: api.FencedLease{CallsCut: 2,
			Checkin: &api.CheckinRequest{LeaseID: r.LeaseID}}}, nil
	}
	s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "alice"}))
	s.At(2*time.Second, s.signal(api.SignalSuspend, api.Control{}))
	s.At(14*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: suspendedLease}))
	s.At(20*time.Second, func() {
		require.Equal(t, lifecycle.Suspended, s.state().State)
		newest := s.history()[len(s.history())-1]
		require.Equal(t, "2", newest.Metadata["calls_cut"])
		require.EqualValues(t, 2, s.metrics().CallsCut)
	})
	run := suspending(s)
	s.slow[api.ActivitySuspend] = 15 * time.Second // the hook runs after drain_timeout
	s.runThrough(run)
	require.Len(t, s.suspends, 1)
}

func TestAResumeWithdrawsASuspensionAndRenewsTheLease(t *testing.T) {
	s := newWorkerEnv(t)
	s.onSuspend = func(api.SuspendRequest) (api.SuspendResult, error) { return api.SuspendResult{Withdrawn: true}, nil }
	s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "alice", TTLMS: 5000}))
	s.At(2*time.Second, s.signal(api.SignalSuspend, api.Control{}))
	s.At(8*time.Second, s.signal(api.SignalResume, api.Control{}))
	s.At(9*time.Second, func() {
		require.Equal(t, lifecycle.Busy, s.state().State)
		require.Len(t, s.resumes, 1, "the host is notified")
	})
	renewal := s.UpdateAt(9*time.Second, api.UpdateRenew, api.RenewRequest{LeaseID: suspendedLease})
	s.At(14*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: suspendedLease}))
	s.At(15*time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.Empty(t, s.state().LastRefusal)
	})
	s.runThrough(suspending(s))
	require.NoError(t, renewal.Rejected)
	require.NoError(t, renewal.Err)
}

func TestASuspensionContinuesAfterContinueAsNew(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "alice"}))
	s.At(2*time.Second, s.signal(api.SignalSuspend, api.Control{}))
	s.OverdueAt(6 * time.Second)
	s.At(7*time.Second, func() { require.Equal(t, 2, s.runs) })
	renewal := s.UpdateAt(7*time.Second, api.UpdateRenew, api.RenewRequest{LeaseID: suspendedLease})
	s.At(20*time.Second, func() {
		require.Equal(t, lifecycle.Suspended, s.state().State)
		newest := s.suspends[len(s.suspends)-1]
		require.LessOrEqual(t, newest.Timeout.D(), 6*time.Second, "the rest of drain_timeout")
		s.signal(api.SignalResume, api.Control{})()
	})
	s.OverdueAt(20*time.Second + 10*time.Millisecond)
	s.At(40*time.Second, func() { require.Equal(t, lifecycle.Ready, s.state().State) })
	s.runThrough(suspending(s))
	requireRefused(t, renewal, api.CodeSuspended)
}

func requireRefused(t *testing.T, r *workflowtest.UpdateResult, code api.Code) {
	t.Helper()
	workflowtest.RequireCode(t, r.Rejected, code)
}

// The suspension is withdrawn when its host has cut a call and fenced the lease, and no run gets the host's answer to
// it.
func TestAResumeReturnsWhatTheWithdrawnSuspensionHasEnded(t *testing.T) {
	for name, c := range map[string]struct{ answered, continues bool }{
		"the answer to the suspension is lost": {},
		"both answers arrive":                  {answered: true},
		"the answers reach two runs":           {answered: true, continues: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			fenced := api.FencedLease{LeaseID: suspendedLease, CallsCut: 2,
				Checkin: &api.CheckinRequest{LeaseID: suspendedLease, Usage: api.Usage{Requests: 3}}}
			s.onSuspend = always[api.SuspendRequest](api.SuspendResult{Withdrawn: true})
			if c.answered {
				s.onSuspend = always[api.SuspendRequest](api.SuspendResult{FencedLease: fenced})
			}
			s.onResume = func(r api.ResumeRequest) (api.ResumeResult, error) {
				require.False(t, r.Suspended)
				return api.ResumeResult{FencedLease: fenced}, nil
			}
			s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "alice"}))
			s.At(2*time.Second, s.signal(api.SignalSuspend, api.Control{}))
			s.At(11*time.Second, s.signal(api.SignalResume, api.Control{}))
			if c.continues {
				s.OverdueAt(14 * time.Second) // between the answers
			}
			s.At(30*time.Second, func() {
				require.Equal(t, c.continues, s.runs > 1)
				require.Equal(t, lifecycle.Ready, s.state().State)
				require.Nil(t, s.state().Lease)
				require.EqualValues(t, 2, s.metrics().CallsCut)
				require.EqualValues(t, 3, s.metrics().RequestsServed)
				require.NotContains(t, s.events(), lifecycle.Suspend)
			})
			run := suspending(s)
			s.slow[api.ActivityResume] = 5 * time.Second // the answer to the suspension comes first
			s.runThrough(run)
		})
	}
}
