package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/loop"
)

func TestInvalidRequestsAreRefusedCountedAndRecorded(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Second, s.signal(api.SignalCheckout, "no object"))
	s.At(2*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{}))
	s.At(3*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "nonsense"}))
	s.At(4*time.Second, s.signal(api.SignalResume, api.Control{}))
	s.At(5*time.Second, func() {
		require.EqualValues(t, 4, s.metrics().LeasesRefused)
		require.Contains(t, s.state().LastRefusal, "resume")
		require.Equal(t, lifecycle.Ready, s.state().State)
	})
	s.runThrough(standalone())
}

func TestARunWithManyCancelledTasksContinuesAsNew(t *testing.T) {
	s := newWorkerEnv(t)
	const turns = 3 * loop.MaxCancelledTasks // each suspension cancels the timer of the checkpoint
	for i := range turns {
		at := time.Duration(i)*10*time.Second + 2*time.Second
		s.At(at, s.signal(api.SignalSuspend, api.Control{}))
		s.At(at+5*time.Second, s.signal(api.SignalResume, api.Control{}))
	}
	s.At(turns*10*time.Second, func() { s.ready(1) })
	s.runThrough(standalone())
	require.GreaterOrEqual(t, s.runs, 3)
	require.LessOrEqual(t, s.runs, 6, "and no more often than that")
}

// TestContinueAsNewChangesNothing plays one eventful life with a new run every n iterations, and expects the same life.
func TestContinueAsNewChangesNothing(t *testing.T) {
	life := func(every int) (story []string, runs int) {
		s := newWorkerEnv(t)
		s.watchScript[1] = crash(100 * time.Second)
		s.watchScript[2] = watchScript{50 * time.Second,
			api.WatchResult{Event: api.WatchShutdown, Reason: "the agent shuts down"}}
		run := standalone()
		run.ContinueEvery = every
		for i := range 10 {
			at := time.Duration(i)*5*time.Second + 2*time.Second
			s.At(at, s.signal(api.SignalCheckout, api.CheckoutRequest{RequestID: fmt.Sprint(i), Holder: "me"}))
			s.At(at+time.Second, s.signal(api.SignalCheckin,
				api.CheckinRequest{LeaseID: api.LeaseID("t", 0, 1, int64(i+1)), Usage: api.Usage{Requests: 1}}))
		}
		// out when it crashes
		s.At(60*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{RequestID: "long", Holder: "me"}))
		s.At(170*time.Second, s.signal(api.SignalCheckout,
			api.CheckoutRequest{RequestID: "again", Holder: "me", TTLMS: 500_000}))
		s.At(171*time.Second, s.signal(api.SignalSuspend, api.Control{}))
		s.At(600*time.Second, func() { require.Equal(t, lifecycle.Suspended, s.state().State) })
		// too late
		s.At(601*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.3.12", Outcome: api.OutcomeOK}))
		s.At(1200*time.Second, s.signal(api.SignalResume, api.Control{}))
		s.At(1300*time.Second, s.signal(api.SignalStop, api.Control{}))
		s.At(1400*time.Second, s.signal(api.SignalRestart, api.Order{}))
		s.At(1500*time.Second, s.signal(api.SignalForceContinue, api.Control{}))
		s.At(1600*time.Second, func() {
			m := s.metrics()
			story = append(story, fmt.Sprintf("granted %d, served %d, refused %d, restarts %d", m.LeasesGranted,
				m.RequestsServed, m.LeasesRefused, m.Restarts))
		})
		s.runThrough(run)
		for _, tr := range s.history() {
			story = append(story, fmt.Sprintf("%s %s→%s #%d", tr.Event, tr.From, tr.To, tr.Incarnation))
		}
		return story, s.runs
	}
	expected, runs := life(0)
	require.Equal(t, 2, runs, "one forced by signal")
	for _, every := range []int{1, 2, 3, 5, 7, 11, 1000} {
		t.Run(fmt.Sprintf("every %d iterations", every), func(t *testing.T) {
			story, runs := life(every)
			require.Equal(t, expected, story)
			if every < 10 {
				require.Greater(t, runs, 4)
			}
		})
	}
}

func TestTheHistorySaysWhyAWorkerEnds(t *testing.T) {
	for want, end := range map[string]func(*workerEnv){
		"workflow cancelled": func(s *workerEnv) { s.cancel() },
		"slot removed (by pool)": func(s *workerEnv) {
			s.signal(api.SignalEnd,
				api.Control{Reason: "slot removed", By: "pool"})()
		},
	} {
		t.Run(want, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.At(time.Minute, func() { end(s) })
			s.run(standalone())
			drains := 0
			for _, transition := range s.history() {
				if transition.Event == lifecycle.Drain {
					drains++
					require.Equal(t, want, transition.Reason)
				}
			}
			require.Equal(t, 1, drains)
		})
	}
}
