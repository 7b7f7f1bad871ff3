package workflows

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestAWorkerStartsServesAndEndsWhenCancelled(t *testing.T) {
	s := newStage(t)
	s.at(time.Second, func() {
		st := s.state()
		require.Equal(t, lifecycle.Ready, st.State)
		require.Equal(t, lifecycle.Healthy, st.Health)
		require.EqualValues(t, 1, st.Incarnation)
		require.Equal(t, 1001, st.PID)
		s.cancel()
	})
	s.play(orphan())
	require.Equal(t, lifecycle.Stopped, s.state().State)
	require.Equal(t, 1, s.counted(&s.stops))
}

func TestALeaseIsExclusiveIdempotentAndNumbered(t *testing.T) {
	s := newStage(t)
	var first, again, other, after *updateAnswer
	s.at(time.Second, func() {
		first = s.update(api.UpdateCheckout, api.CheckoutRequest{RequestID: "r1", Holder: "me"})
	})
	s.at(2*time.Second, func() {
		other = s.update(api.UpdateCheckout, api.CheckoutRequest{RequestID: "r2", Holder: "you"})
		again = s.update(api.UpdateCheckout, api.CheckoutRequest{RequestID: "r1", Holder: "me"})
	})
	s.at(3*time.Second, func() {
		require.Equal(t, lifecycle.Busy, s.state().State)
		s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1", Usage: api.Usage{Requests: 3, Failed: 1, TotalMS: 30}})()
	})
	s.at(4*time.Second, func() {
		after = s.update(api.UpdateCheckout, api.CheckoutRequest{RequestID: "r3", Holder: "you"})
	})
	s.at(5*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"})) // stale: changes nothing
	s.at(6*time.Second, func() {
		require.Equal(t, "t.0.1.2", s.state().Lease.ID)
		m := s.metrics()
		require.EqualValues(t, 3, m.RequestsServed)
		require.EqualValues(t, 1, m.RequestsFailed)
		require.InDelta(t, 10, m.AvgCallTimeMS, 0.001)
		require.EqualValues(t, 2, m.LeasesGranted)
		require.EqualValues(t, 1, m.LeasesRefused)
		s.cancel()
	})
	s.play(orphan())
	require.NoError(t, first.rejected)
	require.Equal(t, "t.0.1.1", first.value.(*api.Lease).ID)
	require.Equal(t, "t.0.1.1", again.value.(*api.Lease).ID)
	require.Equal(t, "t.0.1.2", after.value.(*api.Lease).ID)
	var refused *temporal.ApplicationError
	require.ErrorAs(t, other.rejected, &refused)
	require.Equal(t, string(api.CodeBusy), refused.Type())
	var hint api.RefusalDetails
	require.NoError(t, refused.Details(&hint))
	require.Positive(t, hint.RetryAfterMS)
}

func TestAnExpiredLeaseReplacesTheWorker(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"shorter than the default": 3 * time.Second, "longer than the default": 100 * time.Second} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.at(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me", TTLMS: ttl.Milliseconds()}))
			s.at(ttl, func() { require.Equal(t, lifecycle.Busy, s.state().State, "not before its time") })
			s.at(ttl+3*time.Second, func() {
				st := s.state()
				require.Equal(t, lifecycle.Ready, st.State)
				require.EqualValues(t, 2, st.Incarnation)
				require.Zero(t, s.metrics().ConsecutiveFailures)
				s.cancel()
			})
			s.play(orphan())
			require.Contains(t, s.events(), lifecycle.LeaseExpired)
		})
	}
}

func TestARenewedLeaseLives(t *testing.T) {
	s := newStage(t)
	s.at(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	var stale *updateAnswer
	for i := 1; i <= 5; i++ {
		s.at(time.Duration(i)*50*time.Second, func() { s.update(api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.1"}) })
	}
	s.at(290*time.Second, func() {
		require.Equal(t, lifecycle.Busy, s.state().State)
		stale = s.update(api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.9"})
	})
	s.at(291*time.Second, s.cancel)
	s.play(orphan())
	require.NotContains(t, s.events(), lifecycle.LeaseExpired)
	var refused *temporal.ApplicationError
	require.ErrorAs(t, stale.rejected, &refused)
	require.Equal(t, string(api.CodeLeaseFenced), refused.Type())
}

func TestACrashIsFollowedByTheNextIncarnationAndALeaseEndsWithIt(t *testing.T) {
	s := newStage(t)
	s.fate[1] = crash(10 * time.Second)
	s.at(5*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.at(20*time.Second, func() {
		st := s.state()
		require.Equal(t, lifecycle.Ready, st.State)
		require.EqualValues(t, 2, st.Incarnation)
		require.Nil(t, st.Lease)
		require.Equal(t, 1, s.metrics().ConsecutiveFailures)
		s.cancel()
	})
	s.play(orphan())
	require.Equal(t, []lifecycle.EventKind{
		lifecycle.Start, lifecycle.StartSucceeded, lifecycle.Checkout, lifecycle.Exited, lifecycle.Start, lifecycle.StartSucceeded,
	}, s.events()[:6])
}

func TestAProgramThatAlwaysCrashesBacksOffAndIsGivenUpUntilSomebodyRestartsIt(t *testing.T) {
	s := newStage(t)
	for i := range int64(30) {
		s.fate[i+1] = crash(time.Millisecond)
	}
	var given int
	s.at(2*time.Hour, func() {
		st := s.state()
		require.Equal(t, lifecycle.Failed, st.State)
		require.Contains(t, st.Reason, "SIGKILL")
		given = s.counted(&s.starts)
		s.spare(st.Incarnation + 1)
		s.signal(api.SignalRestart, api.Restart{Reason: "fixed it", By: "me"})()
	})
	s.at(2*time.Hour+time.Minute, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		s.cancel()
	})
	s.play(orphan())
	limit := testSpec().Recovery.MaxConsecutiveFailures
	require.InDelta(t, limit, given, 1, "started no more often than the limit allows")
}

func TestAStartThatFailsSaysWhyAndIsTriedAgain(t *testing.T) {
	s := newStage(t)
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		if r.Incarnation < 3 {
			return api.StartResult{}, temporal.NewNonRetryableApplicationError("no module named torch", "start_failed", nil)
		}
		return api.StartResult{Host: "h", PID: 7}, nil
	}
	s.at(time.Minute, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		s.cancel()
	})
	s.play(orphan())
	require.Contains(t, s.history()[1].Reason, "no module named torch")
	require.Equal(t, lifecycle.StartFailed, s.history()[1].Event)
}

func TestFailedProbesDegradeThenReplace(t *testing.T) {
	failed := api.WatchResult{Event: api.WatchProbeFailed, Reason: "no answer within 5s"}
	s := newStage(t)
	s.fate[1] = fate{30 * time.Second, failed} // and again at every later look, since its time has passed
	s.at(30*time.Second+time.Millisecond/2, func() {})
	s.at(5*time.Minute, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		require.Equal(t, 1, s.metrics().ConsecutiveFailures)
		s.cancel()
	})
	s.play(orphan())
	require.Equal(t, []lifecycle.EventKind{
		lifecycle.Start, lifecycle.StartSucceeded, lifecycle.ProbeFailed, lifecycle.Unhealthy, lifecycle.Exited, lifecycle.Start,
	}, s.events()[:6])
}

func TestADegradedWorkerWhoseProbePassesIsReadyAgain(t *testing.T) {
	s := newStage(t)
	s.fate[1] = fate{20 * time.Second, api.WatchResult{Event: api.WatchProbePassed}}
	s.at(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.at(2*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1", Outcome: api.OutcomeError, Error: "odd answers"}))
	var refused *updateAnswer
	s.at(3*time.Second, func() {
		require.Equal(t, lifecycle.Degraded, s.state().State)
		refused = s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: "you"})
	})
	s.at(25*time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		s.spare(1)
		s.cancel()
	})
	s.play(orphan())
	var app *temporal.ApplicationError
	require.ErrorAs(t, refused.rejected, &app)
	require.Equal(t, string(api.CodeDegraded), app.Type())
}

func TestTheCheckpointNoticesAProcessThatWatchDidNot(t *testing.T) {
	s := newStage(t)
	s.onProbe = func(r api.WatchRequest) (api.ProbeResult, error) {
		return api.ProbeResult{Gone: r.Incarnation == 1, Healthy: r.Incarnation > 1, Reason: "it has gone"}, nil
	}
	s.at(6*time.Minute, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		s.cancel()
	})
	s.play(orphan())
	require.Positive(t, s.counted(&s.probes))
}

func TestDrainWaitsForTheLeaseAndThenRests(t *testing.T) {
	s := newStage(t)
	s.at(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.at(2*time.Second, s.signal(api.SignalDrain, api.Control{Reason: "new disk", By: "op"}))
	s.at(3*time.Second, func() {
		require.Equal(t, lifecycle.Draining, s.state().State)
		s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"})()
	})
	s.at(4*time.Second, func() {
		require.Equal(t, lifecycle.Stopped, s.state().State)
		s.signal(api.SignalRestart, api.Restart{})()
	})
	s.at(5*time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.EqualValues(t, 2, s.state().Incarnation)
		s.cancel()
	})
	s.play(orphan())
	require.Contains(t, s.events(), lifecycle.Drained)
}

func TestDrainGivesUpWaitingAfterItsTimeout(t *testing.T) {
	s := newStage(t)
	s.at(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.at(2*time.Second, s.signal(api.SignalDrain, api.Control{}))
	s.at(20*time.Second, func() {
		require.Equal(t, lifecycle.Stopped, s.state().State)
		s.cancel()
	})
	s.play(orphan())
	require.Contains(t, s.events(), lifecycle.DrainTimeout)
}

func TestSuspendKeepsTheProcessAndResumeProbesFirst(t *testing.T) {
	s := newStage(t)
	s.at(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.at(2*time.Second, s.signal(api.SignalSuspend, api.Control{By: "op"})) // busy: takes effect when the lease is back
	s.at(3*time.Second, func() { require.Equal(t, lifecycle.Busy, s.state().State) })
	s.at(4*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"}))
	s.at(time.Hour, func() {
		require.Equal(t, lifecycle.Suspended, s.state().State)
		require.Zero(t, s.counted(&s.probes), "health checks pause")
		s.signal(api.SignalResume, api.Control{})()
	})
	s.at(time.Hour+time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.Equal(t, 1, s.counted(&s.probes))
		require.EqualValues(t, 1, s.state().Incarnation)
		s.cancel()
	})
	s.play(orphan())
}

func TestRestartTakesTheNewSpecAlong(t *testing.T) {
	s := newStage(t)
	var started []string
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		started = append(started, r.Spec.Pool.Command[0])
		return api.StartResult{Host: "h", PID: 1}, nil
	}
	changed := testSpec()
	changed.Pool.Command = []string{"false"}
	s.at(time.Second, s.signal(api.SignalRestart, api.Restart{Reason: "apply", Spec: &changed, SpecVersion: 2}))
	s.at(2*time.Second, func() {
		require.EqualValues(t, 2, s.state().SpecVersion)
		s.cancel()
	})
	s.play(orphan())
	require.Equal(t, []string{"true", "false"}, started)
}

func TestAnAgentThatShutsDownHasItsWorkerPlacedAnew(t *testing.T) {
	s := newStage(t)
	s.fate[1] = fate{10 * time.Second, api.WatchResult{Event: api.WatchShutdown, Reason: "the agent shuts down"}}
	s.at(20*time.Second, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		require.Zero(t, s.metrics().ConsecutiveFailures)
		s.cancel()
	})
	s.play(orphan())
	require.Equal(t, 2, s.counted(&s.stops))
}

func TestNonsenseIsRefusedCountedAndRecorded(t *testing.T) {
	s := newStage(t)
	s.at(time.Second, s.signal(api.SignalCheckout, "no object"))
	s.at(2*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{}))
	s.at(3*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "nonsense"}))
	s.at(4*time.Second, s.signal(api.SignalResume, api.Control{}))
	s.at(5*time.Second, func() {
		require.EqualValues(t, 4, s.metrics().LeasesRefused)
		require.Contains(t, s.state().LastRefusal, "resume")
		require.Equal(t, lifecycle.Ready, s.state().State)
		s.cancel()
	})
	s.play(orphan())
}

func TestAWorkerThatIsDismissedEndsAlsoWhenTheNextCancellationIsExcused(t *testing.T) {
	s := newStage(t)
	s.at(time.Second, s.signal(api.SignalPoolContinues, api.Control{}))
	s.at(2*time.Second, s.signal(api.SignalEnd, api.Control{}))
	s.play(orphan())
	require.Equal(t, lifecycle.Stopped, s.state().State)
	require.Equal(t, 1, s.counted(&s.stops))
	require.Equal(t, 1, s.runs)
}

func TestARunThatHasCalledOffManyTasksMakesWayForTheNext(t *testing.T) {
	s := newStage(t)
	const turns = maxCancelledTasks // each suspension calls off the timer of the checkpoint and replaces the watch, as does its end
	for i := range turns {
		at := time.Duration(i)*10*time.Second + 2*time.Second
		s.at(at, s.signal(api.SignalSuspend, api.Control{}))
		s.at(at+5*time.Second, s.signal(api.SignalResume, api.Control{}))
	}
	s.at(turns*10*time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.EqualValues(t, 1, s.state().Incarnation)
		s.cancel()
	})
	s.play(orphan())
	require.GreaterOrEqual(t, s.runs, 3)
	require.LessOrEqual(t, s.runs, 6, "and no more often than that")
}

// TestContinueAsNewChangesNothing plays one eventful life with a new run every n turns, and expects the same life.
func TestContinueAsNewChangesNothing(t *testing.T) {
	life := func(every int) (story []string, runs int) {
		s := newStage(t)
		s.fate[1] = crash(100 * time.Second)
		s.fate[2] = fate{50 * time.Second, api.WatchResult{Event: api.WatchShutdown, Reason: "the agent shuts down"}}
		run := orphan()
		run.ContinueEvery = every
		for i := range 10 {
			at := time.Duration(i)*5*time.Second + 2*time.Second
			s.at(at, s.signal(api.SignalCheckout, api.CheckoutRequest{RequestID: fmt.Sprint(i), Holder: "me"}))
			s.at(at+time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: api.LeaseID("t", 0, 1, int64(i+1)), Usage: api.Usage{Requests: 1}}))
		}
		s.at(60*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{RequestID: "long", Holder: "me"})) // out when it crashes
		s.at(170*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{RequestID: "again", Holder: "me", TTLMS: 500_000}))
		s.at(171*time.Second, s.signal(api.SignalSuspend, api.Control{}))
		s.at(600*time.Second, func() { require.Equal(t, "t.0.3.12", s.state().Lease.ID) })
		s.at(601*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.3.12", Outcome: api.OutcomeOK}))
		s.at(1200*time.Second, s.signal(api.SignalResume, api.Control{}))
		s.at(1300*time.Second, s.signal(api.SignalStop, api.Control{}))
		s.at(1400*time.Second, s.signal(api.SignalRestart, api.Restart{}))
		s.at(1500*time.Second, s.signal(api.SignalForceContinue, api.Control{}))
		s.at(1600*time.Second, func() {
			m := s.metrics()
			story = append(story, fmt.Sprintf("granted %d, served %d, refused %d, restarts %d", m.LeasesGranted, m.RequestsServed, m.LeasesRefused, m.Restarts))
			s.cancel()
		})
		s.play(run)
		for _, tr := range s.history() {
			story = append(story, fmt.Sprintf("%s %s→%s #%d", tr.Event, tr.From, tr.To, tr.Incarnation))
		}
		return story, s.runs
	}
	expected, runs := life(0)
	require.Equal(t, 2, runs, "one forced by signal")
	for _, every := range []int{1, 2, 3, 5, 7, 11, 1000} {
		t.Run(fmt.Sprintf("every %d turns", every), func(t *testing.T) {
			story, runs := life(every)
			require.Equal(t, expected, story)
			if every < 10 {
				require.Greater(t, runs, 4)
			}
		})
	}
}

// A checkout in the same workflow task as signals reads them before the loop does.
func TestASignalThatARefusedCheckoutReadIsActedOnAtOnce(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterDelayedCallback(func() { env.SignalWorkflow(api.SignalRestart, api.Restart{Reason: "new moon"}) }, time.Second)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		w := newWorker(ctx, orphan())
		w.registerSignals()
		if err := workflow.Sleep(ctx, time.Minute); err != nil {
			return err
		}
		require.True(t, w.hasSignals())
		_, err := w.checkout(ctx, api.CheckoutRequest{Holder: "me"})
		require.ErrorContains(t, err, "about to leave service")
		require.True(t, w.events.restart.wanted)
		require.True(t, w.selector.HasPending(), "the loop is woken")
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}
