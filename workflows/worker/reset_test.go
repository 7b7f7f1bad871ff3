package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func resettable() Run {
	run := standalone()
	run.Spec.Lease.OnExpiry = spec.ExpiryReset
	return run
}

func TestAWorkerIsResetWhenItsLeaseExpiresAndIsReadyAgain(t *testing.T) {
	throughRuns(t, []int{0, 1, 2, 3, 5, 7, 11}, func(t *testing.T, s *workerEnv) {
		s.onReset = func(r api.ResetRequest) (api.ResetResult, error) {
			require.Equal(t, "t.0.1.1", r.LeaseID)
			require.EqualValues(t, 1, r.Incarnation)
			return api.ResetResult{Usage: api.Usage{Requests: 3}}, nil
		}
		s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 3000}))
		s.At(2*time.Second, s.signal(api.SignalProcessEvents, unhealthy("10 calls in a row failed")))
		s.At(10*time.Second, func() {
			require.Nil(t, s.ready(1).Lease, "the same process")
			require.EqualValues(t, 3, s.metrics().RequestsServed)
			require.Empty(t, s.metrics().RestartsByReason)
		})
		late := s.UpdateAt(10*time.Second, api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.1"})
		next := s.UpdateAt(10*time.Second, api.UpdateCheckout, api.CheckoutRequest{Holder: "you"})
		s.At(11*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.2"}))
		s.At(12*time.Second, func() { require.Equal(t, lifecycle.Ready, s.state().State, "the reset is a passed probe") })
		s.runThrough(resettable())
		requireRefused(t, late, api.CodeLeaseFenced)
		require.Equal(t, "t.0.1.2", next.Value.(*api.Lease).ID)
		require.Equal(t, []lifecycle.EventKind{
			lifecycle.Start, lifecycle.StartSucceeded, lifecycle.Checkout, lifecycle.CheckinError, lifecycle.ProbePassed,
			lifecycle.Checkout,
		}, s.events()[:6])
		require.Contains(t, s.history()[3].Reason, `lease t.0.1.1 of "me" expired`)
		require.Contains(t, s.history()[4].Reason, "process reset")
	})
}

func TestAWorkerThatIsNotResetIsReplaced(t *testing.T) {
	for name, answer := range map[string]struct {
		result api.ResetResult
		err    error
	}{
		"it has no such method": {api.ResetResult{Problem: "t/0 has no method lease.reset"}, nil},
		"the host fails":        {api.ResetResult{}, errors.New("t/0 has no method lease.reset")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.onReset = func(api.ResetRequest) (api.ResetResult, error) { return answer.result, answer.err }
			s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 3000}))
			s.At(20*time.Second, func() {
				s.ready(2)
				require.Equal(t, map[string]int64{"lease": 1}, s.metrics().RestartsByReason)
				require.Zero(t, s.metrics().ConsecutiveFailures)
			})
			s.runThrough(resettable())
			require.Contains(t, s.events(), lifecycle.EventKind(lifecycle.Unhealthy))
			for _, step := range s.history() {
				if step.Event == lifecycle.EventKind(lifecycle.Unhealthy) {
					require.Contains(t, step.Reason, "has no method lease.reset")
				}
			}
		})
	}
}
