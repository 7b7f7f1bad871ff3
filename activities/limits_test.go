package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

func TestApplyLimitsChangesTheGivenLimits(t *testing.T) {
	h, p := newHost(t, func(sp *spec.Spec) { withoutProtocol(sp); sp.Limits.CPU = 2 }, "sleep", "1000")
	r, err := h.ApplyLimits(t.Context(), api.ApplyLimitsRequest{Process: worker, MemoryBytes: 1 << 30, Reason: "a test"})
	require.NoError(t, err)
	require.Equal(t, "rlimit", r.Limits["open_files"])
	require.Contains(t, []string{"cgroup", "sampler"}, r.Limits["memory"])
	require.EqualValues(t, 1<<30, p.Limits().Memory)
	require.Equal(t, 2.0, p.Limits().CPU, "what is 0 stays")
	_, err = h.ApplyLimits(t.Context(), api.ApplyLimitsRequest{Process: worker, CPUCores: 0.5})
	require.NoError(t, err)
	require.Equal(t, 0.5, p.Limits().CPU)
	require.EqualValues(t, 1<<30, p.Limits().Memory)

	_, err = h.ApplyLimits(t.Context(), api.ApplyLimitsRequest{Process: worker, MemoryBytes: -1})
	requireType(t, err, api.CodeInvalid)
	_, err = h.ApplyLimits(t.Context(), api.ApplyLimitsRequest{Process: unknown, CPUCores: 1})
	requireType(t, err, api.CodeUnavailable)
	_, err = p.Stop(t.Context(), 0)
	require.NoError(t, err)
	_, err = h.ApplyLimits(t.Context(), api.ApplyLimitsRequest{Process: worker, CPUCores: 1})
	requireType(t, err, api.CodeUnavailable)
}

func TestCollectGarbageReportsMemoryBeforeAndAfter(t *testing.T) {
	h, p := newHost(t, func(sp *spec.Spec) {
		sp.Pool.Env = map[string]string{"PYTHONPATH": "../sdk/python", "PYTHONDONTWRITEBYTECODE": "1"}
	}, "python3", "-c", `
import gc, time, tempool
gc.disable()

@tempool.method
def sleep(): time.sleep(1000)

@tempool.on_start
def litter():
    for _ in range(20):
        thing = [bytearray(b"x" * (5 << 20))]
        thing.append(thing)

tempool.run()`)
	_, err := p.FreshSample(t.Context())
	require.NoError(t, err)
	r, err := h.CollectGarbage(t.Context(),
		api.CollectGarbageRequest{Process: worker, Timeout: spec.Duration(waitTimeout)})
	require.NoError(t, err)
	require.Greater(t, r.BeforeBytes, int64(100<<20))
	require.Less(t, r.AfterBytes, r.BeforeBytes-80<<20)

	_, err = h.CollectGarbage(t.Context(), api.CollectGarbageRequest{Process: unknown})
	requireType(t, err, api.CodeUnavailable)
}

func TestCollectGarbageFailsWhereTheProtocolHasNoSuchRequest(t *testing.T) {
	h, _ := newHost(t, withoutProtocol, "sleep", "1000")
	_, err := h.CollectGarbage(t.Context(), api.CollectGarbageRequest{Process: worker})
	requireType(t, err, api.CodeInvalid)
}
