package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// Callers that leave cost processes, and never take a worker out of service. A host that was lost and came back has
// killed its processes; that may arrive before the end of its epoch does.
func TestAProcessThatItsHostKilledIsReplacedAtOnceAndCountsNoFailure(t *testing.T) {
	const times = 20
	for cause, c := range map[api.Cause]struct {
		exit     lifecycle.Exit
		callsCut int64
	}{
		api.CauseCutCall:  {lifecycle.Exit{Killed: true, CutCall: true, Signal: "SIGKILL"}, times},
		api.CauseHostLost: {lifecycle.Exit{Killed: true, ByAgent: true, Signal: "SIGKILL"}, 0},
	} {
		t.Run(string(cause), func(t *testing.T) {
			s := newWorkerEnv(t)
			for i := range int64(times) {
				s.watchScript[i+1] = watchScript{time.Second,
					api.WatchResult{Event: api.WatchExited, Reason: "killed for a reason", Exit: &c.exit}}
			}
			s.At(30*time.Second, func() {
				m := s.metrics()
				s.ready(times + 1)
				require.Zero(t, m.ConsecutiveFailures)
				require.Equal(t, c.callsCut, m.CallsCut)
				require.Equal(t, map[string]int64{string(cause): times}, m.RestartsByReason)
				require.NotContains(t, s.events(), lifecycle.Hold, "no backoff")
			})
			s.runThrough(standalone())
		})
	}
}
