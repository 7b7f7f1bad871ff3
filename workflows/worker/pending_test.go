package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

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
