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
			Event: api.WatchExited, Reason: "killed: did not end a cancelled call within 5s",
			Exit: &lifecycle.Exit{Killed: true, CutCall: true, Signal: "SIGKILL"},
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

// A host that was lost and came back has killed its processes; that may arrive before the end of its epoch does.
func TestAProcessThatItsAgentKilledIsReplacedAtOnceAndCountsNoFailure(t *testing.T) {
	s := newWorkerEnv(t)
	const reason = "killed: host a was lost, and its agent has joined it again"
	s.watchScript[1] = watchScript{time.Second, api.WatchResult{
		Event: api.WatchExited, Reason: reason, Exit: &lifecycle.Exit{Killed: true, ByAgent: true, Signal: "SIGKILL"},
	}}
	s.At(5*time.Second, func() {
		state, m := s.state(), s.metrics()
		require.Equal(t, lifecycle.Ready, state.State)
		require.EqualValues(t, 2, state.Incarnation)
		require.Zero(t, m.ConsecutiveFailures)
		require.Equal(t, map[string]int64{string(api.CauseHostLost): 1}, m.RestartsByReason)
		require.NotContains(t, s.events(), lifecycle.Hold, "no backoff")
	})
	s.At(6*time.Second, s.cancel)
	s.run(standalone())
}
