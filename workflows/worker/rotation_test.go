package worker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// rotating is a worker without a pool, which need not ask, under a changed spec.
func rotating(change func(*spec.Spec)) Run {
	run := standalone()
	change(&run.Spec)
	return run
}

// finding is what a Watch returns for an incarnation that should go.
func finding(after time.Duration, cause api.Cause, reason string) watchScript {
	return watchScript{after, api.WatchResult{
		Event: api.WatchReplace, Cause: cause, Reason: reason,
		Assessment: &api.Assessment{Grade: "degraded", Score: 50, Warnings: []string{"Its memory is at 400 MB."}},
	}}
}

func reasons(history []lifecycle.Transition) string {
	var all []string
	for _, step := range history {
		all = append(all, step.Reason)
	}
	return strings.Join(all, "\n")
}

func TestAWorkerIsRotatedForItsAgeAndNeverOutOfService(t *testing.T) {
	throughRuns(t, []int{0, 1, 2, 3, 5, 7}, func(t *testing.T, s *workerEnv) {
		for m := 1; m <= 130; m++ {
			s.At(time.Duration(m)*time.Minute, func() { require.Equal(t, lifecycle.Ready, s.state().State) })
		}
		s.At(59*time.Minute, func() { require.EqualValues(t, 1, s.state().Incarnation) })
		s.At(61*time.Minute, func() {
			st := s.state()
			require.EqualValues(t, 2, st.Incarnation)
			require.Equal(t, 1002, st.PID)
			require.Empty(t, st.Draining)
			require.Equal(t, api.CauseUptime, st.LastRotation.Cause)
		})
		s.At(131*time.Minute, func() {
			m := s.metrics()
			require.EqualValues(t, 2, m.Rotations)
			require.Equal(t, map[string]int64{"uptime": 2}, m.RotationsByReason)
			require.Empty(t, m.RestartsByReason)
			require.Contains(t, reasons(s.history()), "up for 1h (limit 1h, rotation.max_uptime)")
		})
		s.runThrough(rotating(func(sp *spec.Spec) { sp.Rotation.MaxUptime = spec.Duration(time.Hour) }))
		require.EqualValues(t, 3, s.starts.Load())
		require.EqualValues(t, 3, s.stops.Load())
	})
}

func TestAWorkerIsRotatedAtItsRequestLimitWhichIsAnotherOneForEachProcess(t *testing.T) {
	s := newWorkerEnv(t)
	limits := map[int64]bool{}
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		limits[r.Rules.RequestLimit] = true
		require.InDelta(t, 1000, r.Rules.RequestLimit, 100)
		return api.StartResult{Host: "h", Rules: r.Rules}, nil
	}
	run := rotating(func(sp *spec.Spec) { sp.Rotation.MaxRequests = 1000; sp.Rotation.Jitter = 0.1 })
	serve := func(at time.Duration, seq int, requests int64) {
		s.At(at, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
		s.At(at+time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{
			LeaseID: api.LeaseID("t", 0, 1, int64(seq)), Usage: api.Usage{Requests: requests},
		}))
	}
	serve(time.Minute, 1, 890)
	s.At(2*time.Minute, func() { require.EqualValues(t, 1, s.state().Incarnation) })
	serve(3*time.Minute, 2, 211)
	s.At(4*time.Minute, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		require.Equal(t, map[string]int64{"requests": 1}, s.metrics().RotationsByReason)
		require.EqualValues(t, 1101, s.metrics().RequestsServed)
		require.Regexp(t, `served 1101 requests \(limit (9|10)\d\d, rotation.max_requests\)`, s.state().LastRotation.Reason)
	})
	for m := 5; m <= 9; m++ {
		s.At(time.Duration(m)*time.Minute, s.signal(api.SignalRestart, api.Order{}))
	}
	s.At(10*time.Minute, s.cancel)
	s.run(run)
	require.Greater(t, len(limits), 3)
}

func TestInObserveModeHealthDecidesNothingAndSaysSo(t *testing.T) {
	s := newWorkerEnv(t)
	found := finding(0, api.CauseGrade, "critical for long").result
	s.At(time.Minute, s.signal(api.SignalProcessEvents, observed(found)))
	s.At(2*time.Minute, func() {
		st := s.state()
		require.EqualValues(t, 1, st.Incarnation)
		require.True(t, st.LastRotation.Observed)
		require.Equal(t, "critical for long", st.LastRotation.Reason)
		require.Equal(t, "degraded", st.Grade)
		require.Contains(t, notes(s.history(), lifecycle.RotationObserved)[0].Reason, "critical for long")
		require.Len(t, notes(s.history(), lifecycle.RotationObserved), 1)
		require.NotContains(t, st.Reason, "critical for long", "it is ready for another reason")
		require.InDelta(t, 50, *st.Score, 0.001)
		require.Equal(t, []string{"Its memory is at 400 MB."}, s.metrics().Warnings)
		require.Zero(t, s.metrics().Rotations)
	})
	s.runThrough(rotating(func(sp *spec.Spec) { sp.Policy.Mode = spec.PolicyObserve }))
	require.EqualValues(t, 1, s.starts.Load())
}

func TestAThousandRotationsLeaveTheStateAsSmallAsItWas(t *testing.T) {
	s := newWorkerEnv(t)
	s.every = 50
	before := 0
	s.At(400*time.Minute, func() { before = s.stateSize })
	s.At(1005*time.Minute, func() {
		require.GreaterOrEqual(t, s.metrics().Rotations, int64(1000))
		require.Positive(t, before)
		require.InEpsilon(t, before, s.stateSize, 0.05)
	})
	s.runThrough(rotating(func(sp *spec.Spec) { sp.Rotation.MaxUptime = spec.Duration(time.Minute) }))
}

func TestAWorkerAsksItsPoolBeforeItRotatesAndServesUntilItMay(t *testing.T) {
	throughRuns(t, []int{0, 1, 2, 3}, func(t *testing.T, s *workerEnv) {
		s.At(80*time.Minute, func() {
			s.ready(1)
			asked := s.signalsOf(api.SignalRotationRequest)
			require.InDelta(t, 20/5, len(asked), 1, "it asks again every five minutes: a request or a grant may get lost")
			for _, again := range asked {
				require.Equal(t, asked[0], again)
			}
			s.signal(api.SignalRotationGrant, api.RotationGrant{Incarnation: 7})() // for none that it has
		})
		s.At(92*time.Minute, func() {
			require.EqualValues(t, 1, s.state().Incarnation)
			s.signal(api.SignalRotationGrant, api.RotationGrant{Incarnation: 1})()
		})
		s.At(100*time.Minute, func() {
			require.EqualValues(t, 2, s.state().Incarnation)
			done := s.signalsOf(api.SignalRotationDone)
			require.Equal(t, api.RotationDone{Slot: 0, Incarnation: 1}, done[len(done)-1])
			for _, m := range s.signalsOf(api.SignalWorkerChanged) {
				entry := m.(api.RosterEntry)
				if entry.Incarnation > 1 {
					require.Equal(t, lifecycle.Ready, entry.State, "the pool never learns of it out of service")
				}
			}
		})
		s.runThrough(inPool(func(sp *spec.Spec) { sp.Rotation.MaxUptime = spec.Duration(time.Hour) }))
	})
}

func TestASuspendedWorkerYieldsItsDisruptionAndRequestsItAgainWhenResumed(t *testing.T) {
	s := newWorkerEnv(t)
	s.failStarts(func(r api.StartRequest) bool {
		return ofSuccessors(r) && len(s.signalsOf(api.SignalRotationDone)) == 0
	})
	s.At(61*time.Minute, s.signal(api.SignalRotationGrant, api.RotationGrant{Incarnation: 1}))
	s.At(61*time.Minute+50*time.Millisecond, s.signal(api.SignalSuspend, api.Control{Reason: "a look at it"}))
	s.At(70*time.Minute, func() {
		require.Equal(t, lifecycle.Suspended, s.state().State)
		require.Len(t, s.signalsOf(api.SignalRotationDone), 1)
		require.Len(t, s.signalsOf(api.SignalRotationRequest), 1)
		s.signal(api.SignalResume, api.Control{})()
	})
	s.At(71*time.Minute, func() {
		require.Len(t, s.signalsOf(api.SignalRotationRequest), 2)
		s.signal(api.SignalRotationGrant, api.RotationGrant{Incarnation: 1})()
	})
	s.At(72*time.Minute, func() { require.Greater(t, s.state().Incarnation, int64(1)) })
	s.runThrough(inPool(func(sp *spec.Spec) { sp.Rotation.MaxUptime = spec.Duration(time.Hour) }))
}

// notes are the entries of a history for decisions of one kind that moved nothing.
func notes(history []lifecycle.Transition, kind lifecycle.NoteKind) []lifecycle.Transition {
	return slices.DeleteFunc(slices.Clone(history), func(t lifecycle.Transition) bool {
		return !t.IsNote() || t.Event != lifecycle.EventKind(kind)
	})
}

// An operator stops the worker while it drains for a rollout without surge.
func TestAWorkerThatRestsInTheMiddleOfARotationSaysSo(t *testing.T) {
	for _, signal := range []string{api.SignalDrain, api.SignalStop} {
		t.Run(signal, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.slow = map[string]time.Duration{api.ActivityDrain: 4 * time.Second}
			s.At(20*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
			s.At(30*time.Second, s.signal(api.SignalRestart, api.Order{ID: "1", Reason: "new moon", Cause: api.CauseSpec}))
			s.At(32*time.Second, func() {
				require.Equal(t, lifecycle.Draining, s.state().State)
				s.env.SignalWorkflow(signal, api.Control{Reason: "look at it"})
			})
			s.At(2*time.Minute, func() {
				require.True(t, s.state().State.Outcome(), s.state().State)
				require.Nil(t, s.state().Rotation)
				require.EqualValues(t, 1, s.state().Incarnation)
				require.Equal(t, []any{api.RotationDone{Incarnation: 1, Reason: "the incarnation ended for another reason",
					Restart: "1"}}, s.signalsOf(api.SignalRotationDone))
			})
			s.runThrough(inPool(func(sp *spec.Spec) { sp.Rotation.Surge = false }))
		})
	}
}
