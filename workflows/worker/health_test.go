package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestFailedProbesDegradeThenReplace(t *testing.T) {
	failed := api.WatchResult{Event: api.WatchProbeFailed, Reason: "no answer within 5s"}
	s := newWorkerEnv(t)
	s.watchScript[1] = watchScript{30 * time.Second, failed} // and again at every later look, since its time has passed
	s.At(30*time.Second+time.Millisecond/2, func() {})
	s.At(time.Minute, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		require.Equal(t, 1, s.metrics().ConsecutiveFailures)
	})
	s.runThrough(standalone())
	require.Equal(t, []lifecycle.EventKind{
		lifecycle.Start, lifecycle.StartSucceeded, lifecycle.ProbeFailed, lifecycle.Unhealthy, lifecycle.Exited,
		lifecycle.Start,
	}, s.events()[:6])
}

func TestTheCheckpointNoticesAProcessThatWatchDidNot(t *testing.T) {
	s := newWorkerEnv(t)
	s.onProbe = func(r api.WatchRequest) (api.WatchResult, error) {
		if r.Incarnation == 1 {
			return api.WatchResult{Event: api.WatchUnknown, Reason: "it has gone"}, nil
		}
		return api.WatchResult{Event: api.WatchProbePassed}, nil
	}
	s.At(6*time.Minute, func() { require.EqualValues(t, 2, s.state().Incarnation) })
	s.runThrough(standalone())
	require.Positive(t, s.probes.Load())
}

// An overloaded Temporal loses the task of an activity on its way to an agent. That is no failure of the program.
func TestACheckpointThatHasNotReachedItsHostIsNoFailedProbe(t *testing.T) {
	s := newWorkerEnv(t)
	s.onProbe = func(api.WatchRequest) (api.WatchResult, error) {
		if s.probes.Load() <= 3 {
			return api.WatchResult{}, temporal.NewTimeoutError(enums.TIMEOUT_TYPE_START_TO_CLOSE, nil)
		}
		return api.WatchResult{Event: api.WatchProbePassed}, nil
	}
	s.At(25*time.Minute, func() {
		s.ready(1)
		require.GreaterOrEqual(t, s.probes.Load(), int64(4))
	})
	s.runThrough(standalone())
	require.NotContains(t, s.events(), lifecycle.ProbeFailed)
}

func TestAWorkerWhoseProgramReportsThatItIsNotWellIsDegradedAtOnce(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Second, s.signal(api.SignalProcessEvents, unhealthy("the GPU is gone")))
	s.At(2*time.Second, func() {
		require.Equal(t, lifecycle.Degraded, s.state().State)
		require.Contains(t, s.state().Reason, "the GPU is gone (failure 1 of 3)")
	})
	s.At(3*time.Second, s.signal(api.SignalProcessEvents, observed(api.WatchResult{Event: api.WatchProbePassed})))
	s.At(4*time.Second, func() { require.Equal(t, lifecycle.Ready, s.state().State) })
	for i := range 3 {
		s.At(5*time.Second+time.Duration(i)*time.Millisecond, s.signal(api.SignalProcessEvents, unhealthy("the GPU is gone")))
	}
	s.At(20*time.Second, func() { require.EqualValues(t, 2, s.state().Incarnation) })
	s.runThrough(standalone())
}

func TestAnExitWithoutItsOutcomeIsIgnored(t *testing.T) {
	s := newWorkerEnv(t)
	// no host sends it, but a stranger may
	s.At(time.Second, s.signal(api.SignalProcessEvents, observed(api.WatchResult{Event: api.WatchExited})))
	s.At(2*time.Second, func() { require.Equal(t, lifecycle.Ready, s.state().State) })
	s.runThrough(standalone())
}

// Its program or its host says so, or the holder of the lease.
func TestALeasedWorkerThatIsNotWellIsDegradedWhenItsLeaseEndsUntilAProbePasses(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.At(2*time.Second, s.signal(api.SignalProcessEvents, unhealthy("the GPU is gone")))
	s.At(3*time.Second, func() { require.Equal(t, lifecycle.Busy, s.state().State) })
	s.At(4*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1", Outcome: api.OutcomeOK}))
	s.At(5*time.Second, func() {
		require.Equal(t, lifecycle.Degraded, s.state().State)
		require.Contains(t, s.state().Reason, "the GPU is gone")
	})
	refused := s.UpdateAt(5*time.Second, api.UpdateCheckout, api.CheckoutRequest{Holder: "you"})
	passed := observed(api.WatchResult{Event: api.WatchProbePassed})
	s.At(6*time.Second, s.signal(api.SignalProcessEvents, passed))
	s.At(7*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.At(8*time.Second, s.signal(api.SignalProcessEvents, unhealthy("again")))
	s.At(9*time.Second, s.signal(api.SignalProcessEvents, passed))
	s.At(10*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.2", Outcome: api.OutcomeOK}))
	s.At(11*time.Second, func() { require.Equal(t, lifecycle.Ready, s.state().State, "a probe has passed since") })
	s.At(12*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me", Session: "s1"}))
	s.At(13*time.Second, s.signal(api.SignalCheckin,
		api.CheckinRequest{LeaseID: "t.0.1.3", Outcome: api.OutcomeError, Error: "odd answers"}))
	s.At(14*time.Second, func() {
		require.Equal(t, lifecycle.Degraded, s.state().State)
		require.Contains(t, s.state().Reason, "odd answers (failure 1 of")
		require.Equal(t, 13*time.Second, s.state().UpdatedAt.Sub(s.Begin).Round(time.Second))
		steps, want := s.history(), map[string]string{"holder": "me", "session": "s1", "lease_id": "t.0.1.3"}
		require.Equal(t, want, steps[len(steps)-2].Metadata, "the history has the lease as data")
		want["error"], want["failure_count"] = "odd answers", "1"
		require.Equal(t, want, steps[len(steps)-1].Metadata)
	})
	s.At(15*time.Second, s.signal(api.SignalProcessEvents, passed))
	s.At(16*time.Second, func() { require.Equal(t, lifecycle.Ready, s.state().State) })
	s.runThrough(standalone())
	requireRefused(t, refused, api.CodeDegraded)
}

// observed is what a host has observed of the first incarnation.
func observed(r api.WatchResult) api.ProcessEvents {
	return api.ProcessEvents{Events: []api.ProcessEvent{{Incarnation: 1, WatchResult: r}}}
}

func unhealthy(reason string) api.ProcessEvents {
	return observed(api.WatchResult{Event: api.WatchUnhealthy, Reason: reason})
}

func TestALeasedWorkerWhoseCallsFailAgainIsReplacedAtOnce(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	again := unhealthy("10 calls in a row failed")
	again.Events[0].Cause = api.CauseUnhealthy
	s.At(2*time.Second, s.signal(api.SignalProcessEvents, again))
	s.At(10*time.Second, func() {
		s.ready(2)
		m := s.metrics()
		require.Zero(t, m.ConsecutiveFailures)
		require.Equal(t, map[string]int64{string(api.CauseUnhealthy): 1}, m.RestartsByReason)
	})
	s.runThrough(standalone())
}
