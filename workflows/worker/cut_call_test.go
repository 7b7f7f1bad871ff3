package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// Callers that leave cost processes, and never take a worker out of service.
func TestAProcessThatEndsForACutCallIsReplacedAtOnceAndCountsNoFailure(t *testing.T) {
	s := newWorkerEnv(t)
	const cut = 20
	for i := range cut {
		s.watchScript[int64(i+1)] = watchScript{time.Second, api.WatchResult{
			Event: api.WatchExited, Reason: "killed: did not give up a cancelled call within 5s", Exit: &lifecycle.Exit{Killed: true, CutCall: true, Signal: "SIGKILL"},
		}}
	}
	s.At(30*time.Second, func() {
		state, m := s.state(), s.metrics()
		require.Equal(t, lifecycle.Ready, state.State)
		require.EqualValues(t, cut+1, state.Incarnation)
		require.Zero(t, m.ConsecutiveFailures)
		require.EqualValues(t, cut, m.CallsCut)
		require.Equal(t, map[string]int64{string(api.CauseCutCall): cut}, m.RestartsByReason)
		require.NotContains(t, s.events(), lifecycle.Hold, "no backoff")
	})
	s.At(31*time.Second, s.cancel)
	s.run(standalone())
}
