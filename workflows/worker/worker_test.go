package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
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
	changed := workflowtest.TestSpec()
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
