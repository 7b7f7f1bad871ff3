package workflows

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// rotating is a worker without a pool, which need not ask, under a changed spec.
func rotating(change func(*spec.Spec)) WorkerRun {
	run := orphan()
	change(&run.Spec)
	return run
}

// finding is what a Watch returns for an incarnation that should go.
func finding(after time.Duration, cause api.Cause, reason string) fate {
	return fate{after, api.WatchResult{
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
	for _, every := range []int{0, 1, 2, 3, 5, 7} {
		t.Run(fmt.Sprintf("a new run every %d turns", every), func(t *testing.T) {
			s := newStage(t)
			run := rotating(func(sp *spec.Spec) { sp.Rotation.MaxUptime = spec.Duration(time.Hour) })
			run.ContinueEvery = every
			for m := 1; m <= 130; m++ {
				s.at(time.Duration(m)*time.Minute, func() { require.Equal(t, lifecycle.Ready, s.state().State) })
			}
			s.at(59*time.Minute, func() { require.EqualValues(t, 1, s.state().Incarnation) })
			s.at(61*time.Minute, func() {
				st := s.state()
				require.EqualValues(t, 2, st.Incarnation)
				require.Equal(t, 1002, st.PID)
				require.Empty(t, st.Leaving)
				require.Equal(t, api.CauseUptime, st.LastRotation.Cause)
			})
			s.at(131*time.Minute, func() {
				m := s.metrics()
				require.EqualValues(t, 2, m.Rotations)
				require.Equal(t, map[string]int64{"uptime": 2}, m.RotationsByReason)
				require.Empty(t, m.RestartsByReason)
				require.Contains(t, reasons(s.history()), "it has been up for 1h0m0s (limit 1h0m0s)")
				s.cancel()
			})
			s.play(run)
			require.Equal(t, 3, s.counted(&s.starts))
			require.Equal(t, 3, s.counted(&s.stops))
		})
	}
}

func TestTheStepsOfAHandoverAreThoseOfTheTable(t *testing.T) {
	s := newStage(t)
	s.at(time.Minute, s.signal(api.SignalRestart, api.Restart{Reason: "new moon", By: "me"}))
	s.at(2*time.Minute, s.cancel)
	s.play(orphan())
	require.Equal(t, []lifecycle.EventKind{
		lifecycle.Start, lifecycle.StartSucceeded,
		lifecycle.Drain, lifecycle.Exited, lifecycle.Start, lifecycle.StartSucceeded,
	}, s.events()[:6])
	end := s.history()[3]
	require.Equal(t, lifecycle.Stopped, end.To)
	require.Contains(t, end.Reason, "incarnation 2")
	require.Contains(t, s.history()[2].Reason, "new moon (by me)")
}

func TestAWorkerThatHasServedItsShareIsRotated(t *testing.T) {
	s := newStage(t)
	run := rotating(func(sp *spec.Spec) { sp.Rotation.MaxRequests = 1000; sp.Rotation.Jitter = 0.1 })
	serve := func(at time.Duration, seq int, requests int64) {
		s.at(at, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
		s.at(at+time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{
			LeaseID: api.LeaseID("t", 0, 1, int64(seq)), Usage: api.Usage{Requests: requests},
		}))
	}
	serve(time.Minute, 1, 890)
	s.at(2*time.Minute, func() { require.EqualValues(t, 1, s.state().Incarnation) })
	serve(3*time.Minute, 2, 211)
	s.at(4*time.Minute, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		require.Equal(t, map[string]int64{"requests": 1}, s.metrics().RotationsByReason)
		require.EqualValues(t, 1101, s.metrics().RequestsServed)
		require.Regexp(t, `it served 1101 requests \(limit (9|10)\d\d\)`, s.state().LastRotation.Reason)
		s.cancel()
	})
	s.play(run)
}

func TestRequestLimitsOfSiblingsDiffer(t *testing.T) {
	limits := map[int64]bool{}
	for range 5 {
		s := newStage(t)
		var seen []int64
		run := rotating(func(sp *spec.Spec) { sp.Rotation.MaxRequests = 10_000 })
		for i := 1; i <= 5; i++ {
			s.at(time.Duration(i)*time.Minute, s.signal(api.SignalRestart, api.Restart{}))
		}
		s.onWatch = func(r api.WatchRequest) {
			if r.Rules.RequestLimit > 0 {
				seen = append(seen, r.Rules.RequestLimit)
			}
		}
		s.at(time.Hour, s.cancel)
		s.play(run)
		require.NotEmpty(t, seen)
		for _, limit := range seen {
			require.GreaterOrEqual(t, limit, int64(9000))
			require.LessOrEqual(t, limit, int64(11000))
			limits[limit] = true
		}
	}
	require.Greater(t, len(limits), 5)
}

func TestWhatTheHostFindsReplacesTheWorker(t *testing.T) {
	for _, cause := range []api.Cause{api.CauseRequests, api.CauseMemory, api.CauseGrade, api.CausePrediction} {
		t.Run(string(cause), func(t *testing.T) {
			s := newStage(t)
			s.fate[1] = finding(time.Minute, cause, "found for a reason")
			s.at(2*time.Minute, func() {
				require.EqualValues(t, 2, s.state().Incarnation)
				require.Equal(t, map[string]int64{string(cause): 1}, s.metrics().RotationsByReason)
				require.Contains(t, reasons(s.history()), "found for a reason")
				s.cancel()
			})
			s.play(orphan())
		})
	}
}

func TestInObserveModeHealthDecidesNothingAndSaysSo(t *testing.T) {
	s := newStage(t)
	s.fate[1] = finding(time.Minute, api.CauseGrade, "critical for long")
	s.at(time.Minute+time.Millisecond, func() { s.spare(1) })
	s.at(2*time.Minute, func() {
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
		s.cancel()
	})
	s.play(rotating(func(sp *spec.Spec) { sp.Policy.Mode = spec.PolicyObserve }))
	require.Equal(t, 1, s.counted(&s.starts))
}

func TestWithoutSurgeTheOldProcessStopsFirst(t *testing.T) {
	s := newStage(t)
	s.at(time.Minute, s.signal(api.SignalRestart, api.Restart{Reason: "new moon"}))
	s.at(2*time.Minute, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		require.Equal(t, map[string]int64{"operator": 1}, s.metrics().RotationsByReason)
		require.Equal(t, 1, s.counted(&s.stops))
		s.cancel()
	})
	s.play(rotating(func(sp *spec.Spec) { sp.Rotation.Surge = false }))
	require.Equal(t, []lifecycle.EventKind{lifecycle.Drain, lifecycle.Drained, lifecycle.Exited, lifecycle.Start, lifecycle.StartSucceeded}, s.events()[2:7])
}

func TestWithoutRoomForTwoTheOldProcessStopsFirst(t *testing.T) {
	s := newStage(t)
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		if len(r.KeepIncarnations) > 0 {
			return api.StartResult{}, temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		}
		return api.StartResult{Host: "h", PID: 1000 + int(r.Incarnation), TookMS: 1}, nil
	}
	s.at(time.Minute, s.signal(api.SignalRestart, api.Restart{Reason: "new moon"}))
	s.at(2*time.Minute, func() {
		st := s.state()
		require.Equal(t, lifecycle.Ready, st.State)
		require.EqualValues(t, 3, st.Incarnation, "the number of the start that nobody took is used up")
		require.Contains(t, st.LastRotation.Reason, "no host has room for a second process")
		s.cancel()
	})
	s.play(orphan())
}

func TestASuccessorThatCannotStartLeavesTheOldProcessServing(t *testing.T) {
	s := newStage(t)
	broken := true
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		if len(r.KeepIncarnations) > 0 && broken {
			return api.StartResult{}, temporal.NewNonRetryableApplicationError("the model file is missing", string(api.CodeStartFailed), nil)
		}
		return api.StartResult{Host: "h", PID: 1000 + int(r.Incarnation), TookMS: 1}, nil
	}
	for m := 1; m < 200; m++ {
		s.at(time.Duration(m)*time.Minute, func() { require.Equal(t, lifecycle.Ready, s.state().State) })
	}
	s.at(61*time.Minute, func() {
		st := s.state()
		require.EqualValues(t, 1, st.Incarnation)
		require.Contains(t, st.Rotation.Failed, "the model file is missing")
		require.Len(t, notes(s.history(), lifecycle.RotationFailed), 1, "the first failure of some")
	})
	s.at(65*time.Minute, func() {
		st := s.state()
		require.Len(t, notes(s.history(), lifecycle.RotationFailed), 2, "the first failure, and giving up")
		for _, n := range notes(s.history(), lifecycle.RotationFailed) {
			require.Contains(t, n.Reason, "the model file is missing")
			require.Equal(t, lifecycle.Ready, n.From)
		}
		require.NotContains(t, st.Reason, "the model file is missing")
		require.Empty(t, tempool.HistoryGaps(s.history()))
	})
	s.at(90*time.Minute, func() { broken = false })
	s.at(200*time.Minute, func() {
		st := s.state()
		require.Greater(t, st.Incarnation, int64(5), "numbers are not used twice")
		require.Equal(t, map[string]int64{"uptime": s.metrics().Rotations}, s.metrics().RotationsByReason)
		require.Positive(t, s.metrics().Rotations)
		s.cancel()
	})
	s.play(rotating(func(sp *spec.Spec) { sp.Rotation.MaxUptime = spec.Duration(time.Hour) }))
}

func TestAClientsLeaseIsLetRunOutBeforeTheHandover(t *testing.T) {
	s := newStage(t)
	s.at(30*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.at(time.Minute, s.signal(api.SignalRestart, api.Restart{Reason: "new moon"}))
	s.at(time.Minute+2*time.Second, func() {
		st := s.state()
		require.Equal(t, lifecycle.Draining, st.State)
		require.EqualValues(t, 2, st.Successor, "the next process is ready and waits")
		require.NotNil(t, st.Lease)
	})
	s.at(time.Minute+3*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1", Usage: api.Usage{Requests: 2}}))
	s.at(time.Minute+4*time.Second, func() {
		st := s.state()
		require.Equal(t, lifecycle.Ready, st.State)
		require.EqualValues(t, 2, st.Incarnation)
		require.EqualValues(t, 2, s.metrics().RequestsServed)
		s.cancel()
	})
	s.play(orphan())
}

func TestAClientsLeaseThatIsNotGivenBackIsCutAfterTheDrainTimeout(t *testing.T) {
	s := newStage(t)
	s.onDrain = func(api.DrainRequest) (api.DrainResult, error) { return api.DrainResult{Cut: 3}, nil }
	s.at(30*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.at(time.Minute, s.signal(api.SignalRestart, api.Restart{Reason: "new moon"}))
	s.at(2*time.Minute, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		require.EqualValues(t, 3, s.metrics().CallsCut)
		require.Contains(t, reasons(s.history()), "calls cut: 3")
		s.cancel()
	})
	s.play(orphan())
}

func TestAGatewaysLeaseEndsWithTheHandoverAndItsUsageStillCounts(t *testing.T) {
	s := newStage(t)
	var renewed *updateAnswer
	s.onDrain = func(r api.DrainRequest) (api.DrainResult, error) {
		if r.Incarnation != 1 {
			return api.DrainResult{Drained: true}, nil
		}
		return api.DrainResult{Drained: true, Checkin: &api.CheckinRequest{LeaseID: "t.0.1.1", Usage: api.Usage{Requests: 7}}}, nil
	}
	s.at(30*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: api.GatewayHolderPrefix + "h"}))
	s.at(time.Minute, s.signal(api.SignalRestart, api.Restart{Reason: "new moon"}))
	s.at(2*time.Minute, func() {
		st := s.state()
		require.Equal(t, lifecycle.Ready, st.State)
		require.Nil(t, st.Lease)
		require.EqualValues(t, 7, s.metrics().RequestsServed)
		require.Zero(t, s.metrics().LeasesRefused)
		renewed = s.update(api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.1"})
	})
	s.at(3*time.Minute, s.cancel)
	s.play(orphan())
	var refused *temporal.ApplicationError
	require.ErrorAs(t, renewed.rejected, &refused)
	require.Equal(t, string(api.CodeLeaseFenced), refused.Type())
}

func TestACrashWhileTheSuccessorStartsIsFollowedByAHigherNumber(t *testing.T) {
	s := newStage(t)
	s.fate[1] = crash(time.Minute)
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		if r.Incarnation == 2 {
			return api.StartResult{}, errors.New("it was called off")
		}
		return api.StartResult{Host: "h", PID: 1000 + int(r.Incarnation), TookMS: 1}, nil
	}
	s.at(59*time.Second+999*time.Millisecond, s.signal(api.SignalRestart, api.Restart{Reason: "new moon"}))
	s.at(2*time.Minute, func() {
		st := s.state()
		require.Equal(t, lifecycle.Ready, st.State)
		require.Greater(t, st.Incarnation, int64(2))
		require.Empty(t, st.Leaving)
		require.Zero(t, st.Successor)
		s.cancel()
	})
	s.play(orphan())
}

func TestStoppedWhileTheSuccessorStartsAWorkerLeavesNeither(t *testing.T) {
	s := newStage(t)
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		if r.Incarnation == 2 { // a host gives up a start that is called off; the environment here would lose a late result of it
			return api.StartResult{}, errors.New("it was called off")
		}
		return api.StartResult{Host: "h", PID: 1000 + int(r.Incarnation), TookMS: 1}, nil
	}
	s.at(time.Minute, func() {
		s.signal(api.SignalRestart, api.Restart{Reason: "new moon"})()
		s.signal(api.SignalStop, api.Control{Reason: "enough"})()
	})
	s.at(2*time.Minute, func() {
		st := s.state()
		require.Equal(t, lifecycle.Stopped, st.State)
		require.Empty(t, st.Leaving)
		require.Zero(t, st.Successor)
		require.Equal(t, 1, s.counted(&s.stops), "the only process that started was stopped")
		s.cancel()
	})
	s.play(orphan())
}

func TestAThousandRotationsLeaveTheStateAsSmallAsItWas(t *testing.T) {
	s := newStage(t)
	run := rotating(func(sp *spec.Spec) { sp.Rotation.MaxUptime = spec.Duration(time.Minute) })
	run.ContinueEvery = 50
	s.at(400*time.Minute, func() { s.sizes = append(s.sizes, s.stateSize) })
	s.at(1005*time.Minute, func() {
		require.GreaterOrEqual(t, s.metrics().Rotations, int64(1000))
		s.sizes = append(s.sizes, s.stateSize)
		s.cancel()
	})
	s.play(run)
	require.Len(t, s.sizes, 2)
	require.Positive(t, s.sizes[0])
	require.InEpsilon(t, s.sizes[0], s.sizes[1], 0.05)
}

func TestAWorkerAsksItsPoolBeforeItRotatesAndServesUntilItMay(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprintf("a new run every %d turns", every), func(t *testing.T) {
			s := newStage(t)
			run := inPool(func(sp *spec.Spec) { sp.Rotation.MaxUptime = spec.Duration(time.Hour) })
			run.ContinueEvery = every
			s.at(80*time.Minute, func() {
				require.EqualValues(t, 1, s.state().Incarnation)
				require.Equal(t, lifecycle.Ready, s.state().State)
				require.Len(t, s.toldOf(api.SignalRotationRequest), 1)
				s.signal(api.SignalRotationGrant, api.RotationGrant{Incarnation: 7})() // for none that it has
			})
			s.at(90*time.Minute, func() {
				require.EqualValues(t, 1, s.state().Incarnation)
				s.signal(api.SignalRotationGrant, api.RotationGrant{Incarnation: 1})()
			})
			s.at(100*time.Minute, func() {
				require.EqualValues(t, 2, s.state().Incarnation)
				done := s.toldOf(api.SignalRotationDone)
				require.Equal(t, api.RotationDone{Slot: 0, Incarnation: 1}, done[len(done)-1])
				for _, m := range s.toldOf(api.SignalWorkerChanged) {
					entry := m.(api.WorkerChanged)
					if entry.Incarnation > 1 {
						require.Equal(t, lifecycle.Ready, entry.State, "the pool never hears of it out of service")
					}
				}
				s.signal(api.SignalEnd, api.Control{})()
			})
			s.play(run)
		})
	}
}

func TestAWorkerWhoseStartsAreHeldIsPendingUntilThePoolLetsItGo(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprintf("a new run every %d turns", every), func(t *testing.T) {
			s := newStage(t)
			run := inPool(func(*spec.Spec) {})
			run.ContinueEvery = every
			s.fate[1] = crash(time.Minute)
			s.at(30*time.Second, s.signal(api.SignalStartsHeld, api.StartsHeld{Reason: "too many starts failed"}))
			s.at(2*time.Minute, func() {
				require.Equal(t, lifecycle.Pending, s.state().State)
				require.Equal(t, "too many starts failed", s.state().Reason)
				require.Equal(t, []any{api.StartRequested{Slot: 0, Incarnation: 2}}, s.toldOf(api.SignalStartRequested))
				s.signal(api.SignalStartReleased, api.StartReleased{Incarnation: 2})()
			})
			s.at(3*time.Minute, func() {
				require.Equal(t, lifecycle.Ready, s.state().State)
				require.Equal(t, map[string]int64{"exit": 1}, s.metrics().RestartsByReason)
				s.signal(api.SignalEnd, api.Control{})()
			})
			s.play(run)
			require.Equal(t, 2, s.counted(&s.starts))
		})
	}
}

func TestHeldStartsGoWhenThePoolHoldsThemNoMoreOrSomebodyRestartsTheWorker(t *testing.T) {
	for name, release := range map[string]func(*stage) func(){
		"held no more": func(s *stage) func() { return s.signal(api.SignalStartsHeld, api.StartsHeld{}) },
		"restarted":    func(s *stage) func() { return s.signal(api.SignalRestart, api.Restart{Reason: "mended"}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			run := inPool(func(*spec.Spec) {})
			run.StartsHeld = "too many starts failed"
			s.at(time.Minute, func() {
				require.Equal(t, lifecycle.Pending, s.state().State)
				require.Zero(t, s.counted(&s.starts))
				release(s)()
			})
			s.at(2*time.Minute, func() {
				require.Equal(t, lifecycle.Ready, s.state().State)
				s.signal(api.SignalEnd, api.Control{})()
			})
			s.play(run)
		})
	}
}

func TestWithAStartRateEveryStartIsAskedFor(t *testing.T) {
	s := newStage(t)
	s.at(time.Second, func() {
		require.Equal(t, lifecycle.Pending, s.state().State)
		require.Contains(t, s.state().Reason, "start.rate_per_second")
		s.signal(api.SignalStartReleased, api.StartReleased{Incarnation: 1})()
	})
	s.at(2*time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.Empty(t, s.metrics().RestartsByReason)
		s.signal(api.SignalEnd, api.Control{})()
	})
	s.play(inPool(func(sp *spec.Spec) { sp.Start.RatePerSecond = 1 }))
}

func TestAWorkerWhoseStartsFailIsQuietButNeverAboutTheEndOfOneThatServed(t *testing.T) {
	s := newStage(t)
	s.fate[1] = crash(time.Minute)
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		if r.Incarnation == 1 {
			return api.StartResult{Host: "h", PID: 1001, TookMS: 1}, nil
		}
		return api.StartResult{}, temporal.NewNonRetryableApplicationError("the model file is missing", string(api.CodeStartFailed), nil)
	}
	s.at(time.Hour, s.signal(api.SignalEnd, api.Control{}))
	s.play(inPool(func(*spec.Spec) {}))
	var story []string
	for _, m := range s.toldOf(api.SignalWorkerChanged) {
		c := m.(api.WorkerChanged)
		story = append(story, fmt.Sprintf("%s #%d", c.State, c.Incarnation))
	}
	t.Log(story)
	require.Subset(t, story, []string{"ready #1", "starting #2", "pending #5"})
	require.Contains(t, story[:len(story)-1], "failed #10", "it gives up")
	require.LessOrEqual(t, len(story), 8)
}

func TestAWorkerGivesUpAfterExactlySoManyFailures(t *testing.T) {
	s := newStage(t)
	s.onStart = func(api.StartRequest) (api.StartResult, error) {
		return api.StartResult{}, temporal.NewNonRetryableApplicationError("the model file is missing", string(api.CodeStartFailed), nil)
	}
	s.at(time.Hour, func() {
		require.Equal(t, 7, s.counted(&s.starts))
		require.Equal(t, lifecycle.Failed, s.state().State)
		require.Equal(t, map[string]int64{"start_failed": 6}, s.metrics().RestartsByReason)
		s.cancel()
	})
	s.play(rotating(func(sp *spec.Spec) { sp.Recovery.MaxConsecutiveFailures = 7 }))
}

func TestTheSeriesOfBackoffsIsThatOfThePolicyAndGoodLifeResetsIt(t *testing.T) {
	s := newStage(t)
	var began []time.Time
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		began = append(began, s.env.Now())
		return api.StartResult{Host: "h", PID: 1000 + int(r.Incarnation), TookMS: 1}, nil
	}
	for i := int64(1); i <= 6; i++ {
		s.fate[i] = crash(10 * time.Millisecond)
	}
	s.fate[7] = crash(2 * time.Minute) // longer than healthy_reset
	s.at(10*time.Minute, s.cancel)
	s.play(orphan())
	require.Len(t, began, 8)
	waits := []float64{0, 0.1, 0.3, 0.9, 2.7, 8.1, 120}
	for i, want := range waits {
		require.InDelta(t, want, began[i+1].Sub(began[i]).Seconds(), 0.1*want+0.1, "wait %d", i+1)
	}
}

func TestASuspendedWorkerGivesItsTurnBackAndAsksAgainWhenResumed(t *testing.T) {
	s := newStage(t)
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		if len(r.KeepIncarnations) > 0 && len(s.toldOf(api.SignalRotationDone)) == 0 {
			return api.StartResult{}, temporal.NewNonRetryableApplicationError("not yet", string(api.CodeStartFailed), nil)
		}
		return api.StartResult{Host: "h", PID: 1000 + int(r.Incarnation), TookMS: 1}, nil
	}
	s.at(61*time.Minute, s.signal(api.SignalRotationGrant, api.RotationGrant{Incarnation: 1}))
	s.at(61*time.Minute+50*time.Millisecond, s.signal(api.SignalSuspend, api.Control{Reason: "a look at it"}))
	s.at(70*time.Minute, func() {
		require.Equal(t, lifecycle.Suspended, s.state().State)
		require.Len(t, s.toldOf(api.SignalRotationDone), 1)
		require.Len(t, s.toldOf(api.SignalRotationRequest), 1)
		s.signal(api.SignalResume, api.Control{})()
	})
	s.at(71*time.Minute, func() {
		require.Len(t, s.toldOf(api.SignalRotationRequest), 2)
		s.signal(api.SignalRotationGrant, api.RotationGrant{Incarnation: 1})()
	})
	s.at(72*time.Minute, func() {
		require.Greater(t, s.state().Incarnation, int64(1))
		s.signal(api.SignalEnd, api.Control{})()
	})
	s.play(inPool(func(sp *spec.Spec) { sp.Rotation.MaxUptime = spec.Duration(time.Hour) }))
}

// notes are the entries of a history for decisions of one kind that moved nothing.
func notes(history []lifecycle.Transition, kind lifecycle.NoteKind) []lifecycle.Transition {
	return slices.DeleteFunc(slices.Clone(history), func(t lifecycle.Transition) bool {
		return !t.Note() || t.Event != lifecycle.EventKind(kind)
	})
}
