package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestAWorkerSaysWhichLimitsItsProcessHasBeenGivenAndTheNextHasNone(t *testing.T) {
	throughRuns(t, []int{0, 1, 2, 3}, func(t *testing.T, s *workerEnv) {
		s.onStart = func(r api.StartRequest) (api.StartResult, error) {
			return api.StartResult{Host: "h", PID: int(r.Incarnation), Limits: map[string]string{"memory": "sampler"}}, nil
		}
		given := api.LimitsApplied{Incarnation: 1, MemoryBytes: 1 << 30, CPUCores: 0.5,
			Limits: map[string]string{"memory": "cgroup", "cpu": "cgroup"}}
		s.At(70*time.Second, s.signal(api.SignalLimitsApplied, given))
		s.At(2*time.Minute, func() {
			st := s.state()
			require.EqualValues(t, 1<<30, st.LimitsApplied.MemoryBytes)
			require.EqualValues(t, 0.5, st.LimitsApplied.CPUCores)
			require.Equal(t, s.Begin.Add(70*time.Second), st.LimitsApplied.At.Truncate(time.Second))
			require.Equal(t, given.Limits, st.Limits)
			s.signal(api.SignalRestart, api.Order{Reason: "new moon"})()
		})
		s.At(3*time.Minute, func() {
			require.EqualValues(t, 2, s.state().Incarnation)
			s.signal(api.SignalLimitsApplied, given)() // too late
		})
		s.At(4*time.Minute, func() {
			require.Nil(t, s.state().LimitsApplied)
			require.Equal(t, map[string]string{"memory": "sampler"}, s.state().Limits)
		})
		s.runThrough(standalone())
	})
}
