package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

func TestASuspensionThatADrainOvertakesFreezesNothing(t *testing.T) {
	h, p := newHost(t, func(sp *spec.Spec) { withoutProtocol(sp); sp.Pool.OnSuspend = spec.SuspendFreeze }, "sleep",
		"1000")
	_, err := h.Drain(t.Context(), api.DrainRequest{Process: worker, Timeout: spec.Duration(time.Minute)})
	require.NoError(t, err)
	result, err := h.Suspend(t.Context(), api.SuspendRequest{Process: worker, Generation: 1})
	require.NoError(t, err)
	require.False(t, result.Frozen)
	require.Empty(t, result.Problem)
	require.False(t, p.Frozen())
}
