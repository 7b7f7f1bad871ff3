package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// A full disk, or a host without descriptors, lasts longer than ten failures in a row: a worker that gave up would need
// an operator.
func TestAWorkerWaitsForAHostWithResourcesAndCountsNoFailure(t *testing.T) {
	s := newWorkerEnv(t)
	const why = "host h cannot start the process: this host is out of resources for another process: no space left on " +
		"device"
	s.failStartsBy(temporal.NewNonRetryableApplicationError(why, string(api.CodeNoWorkers), nil),
		func(r api.StartRequest) bool { return r.Incarnation <= 20 })
	s.slow = map[string]time.Duration{api.ActivityStart: time.Second}
	s.At(10*time.Second+time.Second/2, func() {
		st := s.state()
		require.Contains(t, []lifecycle.State{lifecycle.Starting, lifecycle.Pending}, st.State)
		require.Contains(t, s.events(), lifecycle.Hold)
	})
	s.At(time.Minute, func() {
		s.ready(21) // no number is used twice on a host
		require.Zero(t, s.metrics().ConsecutiveFailures)
	})
	s.runThrough(standalone())
	require.EqualValues(t, 21, s.starts.Load())
}
