package worker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func TestEachFailedStartIsInTheHistory(t *testing.T) {
	throughRuns(t, []int{0, 1, 2, 3, 5, 7, 11}, func(t *testing.T, s *workerEnv) {
		var asked []string
		s.onStart = func(r api.StartRequest) (api.StartResult, error) {
			asked = append(asked, fmt.Sprintf("#%d after %d failures", r.Incarnation, r.Failures))
			return api.StartResult{}, temporal.NewNonRetryableApplicationError("the model file is missing",
				string(api.CodeStartFailed), nil, api.StartFailedDetails{Usage: api.Usage{Requests: 2, Failed: 1}})
		}
		s.At(time.Hour, func() {
			st := s.state()
			require.EqualValues(t, 20, s.metrics().RequestsServed, "two calls of each process, before it ended")
			require.EqualValues(t, 10, s.metrics().RequestsFailed)
			require.Equal(t, lifecycle.Failed, st.State)
			require.EqualValues(t, 10, st.Incarnation)
			require.Contains(t, st.Reason, "Gave up after 10 failures")
			require.Equal(t, map[string]int64{"start_failed": 9}, s.metrics().RestartsByReason)
			failed := 0
			for _, step := range s.history() {
				if step.Event == lifecycle.StartFailed {
					failed++
					require.EqualValues(t, failed, step.Incarnation)
					require.Contains(t, step.Reason, "the model file is missing")
				}
			}
			require.Equal(t, 10, failed)
		})
		s.runThrough(standalone())
		require.Len(t, asked, 10)
		require.Equal(t, "#1 after 0 failures", asked[0])
		require.Equal(t, "#10 after 9 failures", asked[9])
	})
}

func TestAWorkerThatTestsTheBreakerRetriesWithoutPermitsAndReportsTheResult(t *testing.T) {
	throughRuns(t, []int{0, 1, 2, 3}, func(t *testing.T, s *workerEnv) {
		var began []time.Duration
		s.failStarts(func(api.StartRequest) bool {
			began = append(began, s.env.Now().Sub(s.Begin))
			return true
		})
		s.At(10*time.Second, s.signal(api.SignalStartPermitted,
			api.StartPermitted{Incarnation: 1, Pause: spec.Duration(30 * time.Second)}))
		s.At(time.Hour, func() { require.Equal(t, lifecycle.Failed, s.state().State) })
		run := inPool(func(sp *spec.Spec) { sp.Recovery.MaxConsecutiveFailures = 6 })
		run.StartsPaused = "breaker open"
		s.runThrough(run)
		require.Len(t, began, 6)
		for i := 1; i < len(began); i++ {
			require.GreaterOrEqual(t, began[i]-began[i-1], 30*time.Second)
		}
		require.Len(t, s.signalsOf(api.SignalStartRequested), 1, "it asked once")
		var story []string
		numbers := map[int64]bool{}
		for _, m := range s.signalsOf(api.SignalWorkerChanged) {
			e := m.(api.RosterEntry)
			numbers[e.ReportSeq] = true
			story = append(story, fmt.Sprintf("%s #%d", e.State, e.Incarnation))
		}
		// The stage takes messages of one moment in any order.
		require.ElementsMatch(t, []string{"pending #1", "starting #1", "pending #2", "failed #6", "failed #6"}, story,
			"the last is its farewell")
		require.Len(t, numbers, len(story), "so that the pool knows their order")
	})
}

// Not that of the spec that it replaces, which may allow ten failures.
func TestTheRecoveryOfTheNextSpecEndsItsRotation(t *testing.T) {
	s := newWorkerEnv(t)
	tried := 0
	s.failStarts(func(r api.StartRequest) bool {
		if ofSuccessors(r) {
			tried++
		}
		return ofSuccessors(r)
	})
	run := standalone()
	next := run.Spec
	next.Recovery.MaxConsecutiveFailures = 1
	s.At(time.Minute, s.signal(api.SignalRestart, api.Order{Reason: "spec 2", Spec: &next, SpecVersion: 2}))
	s.At(2*time.Minute, func() {
		st := s.state()
		require.Equal(t, 1, tried)
		require.Nil(t, st.Rotation)
		require.Contains(t, st.LastRotation.Failed, "the model file is missing")
	})
	s.runThrough(run)
}

func TestWithoutCapacityForTwoTheOldProcessStopsFirst(t *testing.T) {
	refused := temporal.NewNonRetryableApplicationError("host h is drained", string(api.CodeNoWorkers), nil)
	for name, c := range map[string]struct {
		err         error
		refusals    int
		incarnation int64 // the number of a start that was refused is used up
		inPlace     bool
	}{
		"no host has room":         {temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil), 9, 3, true},
		"each host refuses":        {refused, 9, 4, true},
		"one of the hosts refuses": {refused, 1, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.failStartsBy(c.err, func(r api.StartRequest) bool {
				if ofSuccessors(r) {
					c.refusals--
				}
				return ofSuccessors(r) && c.refusals >= 0
			})
			s.At(time.Minute, s.signal(api.SignalRestart, api.Order{Reason: "new moon"}))
			s.At(2*time.Minute, func() {
				st := s.ready(c.incarnation)
				require.Equal(t, c.inPlace, strings.Contains(st.LastRotation.Reason, "no host has capacity for a second process"))
				require.Equal(t, c.inPlace, slices.Contains(s.events(), lifecycle.Drained))
			})
			s.runThrough(standalone())
		})
	}
}

func TestAStartThatNoAgentTakesSaysWhatToDo(t *testing.T) {
	s := newWorkerEnv(t)
	s.slow = map[string]time.Duration{api.ActivityAwaitCapacity: time.Hour}
	s.onStart = func(api.StartRequest) (api.StartResult, error) { return api.StartResult{}, errNotTaken }
	s.At(time.Minute, func() {
		require.Equal(t, lifecycle.Pending, s.state().State)
		require.Contains(t, s.state().Reason, "no agent with capacity took the start from ")
		require.Contains(t, s.state().Reason, "; start an agent with --labels gpu, or raise its --capacity")
	})
	s.runThrough(inPool(func(sp *spec.Spec) { sp.Pool.Placement = "gpu" }))
}

// The host has reported the first start, so that the worker reports none of a few that fail. One that the breaker holds
// may last.
func TestAPoolKnowsThatItsBreakerHoldsAWorkerWhoseStartFailed(t *testing.T) {
	s := newWorkerEnv(t)
	s.failStarts(allStarts)
	s.At(2*time.Second, s.signal(api.SignalStartsPaused, api.StartsPaused{Reason: "too many starts failed"}))
	s.At(time.Minute, func() { require.Equal(t, lifecycle.Pending, s.newestReport().State) })
	s.runThrough(inPool(func(sp *spec.Spec) { sp.Recovery.BackoffInitial = spec.Duration(5 * time.Second) }))
}
