package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func TestAWorkerWhoseStartsAreHeldIsPendingUntilThePoolPermitsTheStart(t *testing.T) {
	throughRuns(t, []int{0, 1, 2, 3}, func(t *testing.T, s *workerEnv) {
		s.watchScript[1] = crash(time.Minute)
		s.At(30*time.Second, s.signal(api.SignalStartsPaused, api.StartsPaused{Reason: "too many starts failed"}))
		s.At(2*time.Minute, func() {
			require.Equal(t, lifecycle.Pending, s.state().State)
			require.Equal(t, "too many starts failed", s.state().Reason)
			require.Equal(t, []any{api.StartRequested{Slot: 0, Incarnation: 2}}, s.signalsOf(api.SignalStartRequested))
			s.signal(api.SignalStartPermitted, api.StartPermitted{Incarnation: 2})()
		})
		s.At(3*time.Minute, func() {
			require.Equal(t, lifecycle.Ready, s.state().State)
			require.Equal(t, map[string]int64{"exit": 1}, s.metrics().RestartsByReason)
		})
		s.runThrough(inPool(func(*spec.Spec) {}))
		require.EqualValues(t, 2, s.starts.Load())
	})
}

// A restart in place waits for its turn by the rate; an open breaker does not hold it.
func TestARestartOfAProcessThatRunsIsAStart(t *testing.T) {
	for name, rate := range map[string]float64{"start.rate_per_second": 1, "breaker": 0} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.slow = map[string]time.Duration{api.ActivityStart: 10 * time.Second, api.ActivityDrain: 10 * time.Second}
			var asked []any
			turn := func(incarnation int64) {
				if rate == 0 {
					return
				}
				asked = append(asked, api.StartRequested{Slot: 0, Incarnation: incarnation})
				require.Equal(t, lifecycle.Pending, s.state().State)
				require.Contains(t, s.state().Reason, "start.rate_per_second")
				require.Equal(t, asked, s.signalsOf(api.SignalStartRequested))
				s.signal(api.SignalStartPermitted, api.StartPermitted{Incarnation: incarnation})()
			}
			s.At(time.Second, func() { turn(1) })
			s.At(5*time.Second, func() {
				require.Equal(t, lifecycle.Starting, s.state().State)
				require.Empty(t, s.metrics().RestartsByReason)
				if rate == 0 {
					s.signal(api.SignalStartsPaused, api.StartsPaused{Reason: "too many starts failed"})()
				}
				s.signal(api.SignalRestart, api.Order{Reason: "while it starts"})()
			})
			s.At(time.Minute, func() { turn(2) })
			s.At(2*time.Minute, func() {
				s.ready(2)
				s.signal(api.SignalRestart, api.Order{Reason: "while it serves"})()
			})
			s.At(3*time.Minute, func() { turn(3) })
			s.At(4*time.Minute, func() {
				s.ready(3)
				s.signal(api.SignalDrain, api.Control{})()
			})
			s.At(4*time.Minute+5*time.Second, s.signal(api.SignalRestart, api.Order{Reason: "while it drains"}))
			s.At(5*time.Minute, func() { turn(4) })
			s.At(6*time.Minute, func() { s.ready(4) })
			s.At(70*time.Minute, s.signal(api.SignalRotationGrant, api.RotationGrant{Incarnation: 4}))
			s.At(72*time.Minute, func() {
				s.ready(5)
				require.Equal(t, asked, s.signalsOf(api.SignalStartRequested), "the pool has granted the rotation")
			})
			s.runThrough(inPool(func(sp *spec.Spec) {
				sp.Rotation.Surge, sp.Rotation.MaxUptime, sp.Start.RatePerSecond = false, spec.Duration(time.Hour), rate
			}))
		})
	}
}
