package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/loop"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

// triesOf are so many failed tries from an incarnation on, each of a second, sent as a host does.
func triesOf(r api.StartRequest, n int, now time.Time) []api.FailedAttempt {
	recovery := policy.Recovery(r.Spec.Recovery)
	var tries []api.FailedAttempt
	at := now.Add(-time.Minute)
	for i := range n {
		try := api.FailedAttempt{Incarnation: r.Incarnation + int64(i), Began: at, Ended: at.Add(time.Second),
			Reason: "the model file is missing"}
		if i+1 < r.MaxAttempts {
			next := recovery.Next(r.Failures+i+1, true, try.Reason, 0.5)
			try.Wait, try.Next = spec.Duration(next.Delay), next.Reason
			at = try.Ended.Add(next.Delay)
		}
		tries = append(tries, try)
	}
	return tries
}

func TestAttemptsThatTemporalRetriedAreInTheHistory(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3, 5, 7, 11} {
		t.Run(fmt.Sprintf("a new run every %d iterations", every), func(t *testing.T) {
			s := newWorkerEnv(t)
			var asked []string
			s.onStart = func(r api.StartRequest) (api.StartResult, error) {
				asked = append(asked, fmt.Sprintf("#%d: %d tries after %d failures", r.Incarnation, r.MaxAttempts, r.Failures))
				tries := triesOf(r, r.MaxAttempts, s.env.Now())
				return api.StartResult{}, temporal.NewNonRetryableApplicationError(
					tries[len(tries)-1].Reason, string(api.CodeStartFailed), nil, api.FailedAttempts{Attempts: tries})
			}
			s.At(time.Hour, func() {
				st := s.state()
				require.Equal(t, lifecycle.Failed, st.State)
				require.EqualValues(t, 10, st.Incarnation)
				require.Contains(t, st.Reason, "Gave up after 10 failures")
				require.Equal(t, map[string]int64{"start_failed": 9}, s.metrics().RestartsByReason)
				failed := 0
				for i, step := range s.history() {
					if step.Event == lifecycle.StartFailed {
						failed++
						require.EqualValues(t, failed, step.Incarnation)
						require.Contains(t, step.Reason, "the model file is missing")
					}
					if i > 0 {
						require.False(t, step.Timestamp.Before(s.history()[i-1].Timestamp), "time does not run backwards")
						require.Equal(t, s.history()[i-1].To, step.From)
					}
				}
				require.Equal(t, 10, failed)
			})
			run := standalone()
			run.ContinueEvery = every
			s.runThrough(run)
			require.Equal(t, []string{
				"#1: 7 tries after 0 failures", "#8: 1 tries after 7 failures", "#9: 1 tries after 8 failures",
				"#10: 1 tries after 9 failures",
			}, asked, "waits of more than ten seconds are the worker's own")
		})
	}
}

func TestAStartThatSucceededAtALaterTryHasThatIncarnation(t *testing.T) {
	s := newWorkerEnv(t)
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		return api.StartResult{Host: "h", PID: 7, Incarnation: r.Incarnation + 3, Failed: triesOf(r, 3, s.env.Now())}, nil
	}
	s.At(time.Minute, func() {
		s.ready(4)
		require.Equal(t, 3, s.metrics().ConsecutiveFailures)
		require.Equal(t, []lifecycle.EventKind{
			lifecycle.Start, lifecycle.StartFailed, lifecycle.Start, lifecycle.StartFailed, lifecycle.Hold, lifecycle.Release,
			lifecycle.StartFailed, lifecycle.Hold, lifecycle.Release, lifecycle.StartSucceeded,
		}, s.events())
	})
	s.runThrough(standalone())
}

func TestNumbersOfLostAttemptsAreNotReused(t *testing.T) {
	s := newWorkerEnv(t)
	var began []int64
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		began = append(began, r.Incarnation)
		if r.Incarnation == 1 {
			return api.StartResult{}, temporal.NewHeartbeatTimeoutError(api.FailedAttempts{Attempts: triesOf(r, 2, s.env.Now())})
		}
		return api.StartResult{Host: "h", PID: 7, Incarnation: r.Incarnation}, nil
	}
	s.At(time.Minute, func() { require.EqualValues(t, 8, s.state().Incarnation) })
	s.runThrough(standalone())
	require.EqualValues(t, 8, began[len(began)-1])
	require.Len(t, began, 7+1, "Temporal tries on, and then the worker does")
}

func TestAWorkerThatNeedsPermitsMakesOneAttempt(t *testing.T) {
	s := newWorkerEnv(t)
	tries := 0
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		tries = r.MaxAttempts
		return api.StartResult{Host: "h", PID: 7, Incarnation: r.Incarnation}, nil
	}
	s.At(time.Second, s.signal(api.SignalStartPermitted, api.StartPermitted{Incarnation: 1}))
	s.At(time.Minute, s.signal(api.SignalEnd, api.Control{}))
	s.run(inPool(func(sp *spec.Spec) { sp.Start.RatePerSecond = 1 }))
	require.Equal(t, 1, tries)
}

func TestAWorkerThatTestsTheBreakerRetriesWithoutPermitsAndReportsTheResult(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprintf("a new run every %d iterations", every), func(t *testing.T) {
			s := newWorkerEnv(t)
			var began []time.Duration
			s.onStart = func(r api.StartRequest) (api.StartResult, error) {
				require.Equal(t, 1, r.MaxAttempts)
				began = append(began, s.env.Now().Sub(s.Begin))
				return api.StartResult{}, temporal.NewNonRetryableApplicationError("the model file is missing",
					string(api.CodeStartFailed), nil)
			}
			s.At(10*time.Second, s.signal(api.SignalStartPermitted,
				api.StartPermitted{Incarnation: 1, Pause: spec.Duration(30 * time.Second)}))
			s.At(time.Hour, func() {
				require.Equal(t, lifecycle.Failed, s.state().State)
				s.signal(api.SignalEnd, api.Control{})()
			})
			run := inPool(func(sp *spec.Spec) { sp.Recovery.MaxConsecutiveFailures = 6 })
			run.StartsPaused, run.ContinueEvery = "breaker open", every
			s.run(run)
			require.Len(t, began, 6)
			for i := 1; i < len(began); i++ {
				require.GreaterOrEqual(t, began[i]-began[i-1], 30*time.Second)
			}
			require.Len(t, s.signalsOf(api.SignalStartRequested), 1, "it asked once")
			var story []string
			for _, m := range s.signalsOf(api.SignalWorkerChanged) {
				e := m.(api.RosterEntry)
				story = append(story, fmt.Sprintf("%s #%d", e.State, e.Incarnation))
			}
			// The stage takes messages of one moment in any order.
			require.ElementsMatch(t, []string{"pending #1", "starting #1", "pending #2", "failed #6", "failed #6"}, story,
				"the last is its farewell")
		})
	}
}

func TestAttemptsOfAStartThatWasStoppedMeanwhileAreOnlyCounted(t *testing.T) {
	env := workflowtest.NewEnvironment(nil, sdk.Options{})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		run := standalone()
		w := newWorker(ctx, &run)
		w.starter.beginIncarnation("first start")
		w.transition(lifecycle.Stop, "by op")
		failed := triesOf(api.StartRequest{Process: w.process(), Spec: w.Spec, MaxAttempts: 5}, 2, w.Now())
		w.starter.replayAttempts(&loop.Result[api.StartResult]{Value: api.StartResult{Incarnation: 3, Failed: failed}})
		require.Equal(t, lifecycle.Stopping, w.Machine.State)
		require.EqualValues(t, 3, w.Machine.Incarnation, "the process to stop is that of the last attempt")
		require.EqualValues(t, 2, w.StartsFailed)
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}
