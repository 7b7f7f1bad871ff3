package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// An overloaded Temporal loses the task of an activity on its way to an agent, and then waits for its end.
func TestAStopThatHasNotReachedItsHostIsRepeated(t *testing.T) {
	s := newWorkerEnv(t)
	s.onStop = func(api.StopRequest) (api.StopResult, error) {
		if s.stops.Load() <= 3 {
			return api.StopResult{}, temporal.NewTimeoutError(enums.TIMEOUT_TYPE_HEARTBEAT, nil)
		}
		return api.StopResult{Exit: lifecycle.Exit{Interrupted: true}, Reason: "stopped gracefully"}, nil
	}
	s.At(time.Second, s.signal(api.SignalDrain, api.Control{Reason: "new disk", By: "op"}))
	s.At(time.Minute, func() {
		require.Equal(t, lifecycle.Stopped, s.state().State)
		require.Equal(t, "new disk (by op): stopped gracefully", s.state().Reason)
	})
	s.runThrough(standalone())
}

// A pool that scales down does not need the worker any more: no call is cut.
func TestAWorkerThatItsPoolHasReservedDrainsAsLongAsCallsMayTake(t *testing.T) {
	s := newWorkerEnv(t)
	var limits []time.Duration
	s.onDrain = func(r api.DrainRequest) (api.DrainResult, error) {
		limits = append(limits, r.Timeout.D())
		return api.DrainResult{}, nil
	}
	s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: api.PoolHolder("t")}))
	s.At(2*time.Second, s.signal(api.SignalEnd, api.Control{LeaseID: "t.0.1.1"}))
	run := standalone()
	s.run(run)
	require.Len(t, limits, 1)
	require.Greater(t, run.Spec.Call.Timeout, run.Spec.Rotation.DrainTimeout)
	require.InDelta(t, run.Spec.Call.Timeout.D().Seconds(), limits[0].Seconds(), 1)
}
