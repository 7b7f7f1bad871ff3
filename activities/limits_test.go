package activities_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) {
	process.RunReaperIfAsked()
	goleak.VerifyTestMain(m)
}

const patience = 20 * time.Second

// hosting is a host with one worker, p/0 in incarnation 1.
func hosting(t *testing.T, change func(*spec.Spec), command ...string) (*activities.Host, *process.Process) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	s, err := process.Open(t.Context(), process.Config{StateDir: t.TempDir(), HostID: "h", Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, s.Close(ctx))
	})
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Command = "p", command
	change(&sp)
	p, err := s.Start(t.Context(), process.Launch{Worker: "p/0", Incarnation: 1, Spec: sp})
	require.NoError(t, err)
	return &activities.Host{ID: "h", Processes: s, Logger: quiet}, p
}

func silent(sp *spec.Spec) {
	sp.Pool.Protocol, sp.Health.Kind, sp.Health.Command = spec.ProtocolNone, spec.HealthExec, []string{"true"}
}

func requireType(t *testing.T, err error, code api.Code) {
	t.Helper()
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, string(code), failure.Type())
	require.True(t, failure.NonRetryable())
}

var (
	worker  = api.Process{Worker: "p/0", Incarnation: 1}
	unknown = api.Process{Worker: "p/9", Incarnation: 1}
)

func TestApplyLimitsChangesWhatItIsGiven(t *testing.T) {
	h, p := hosting(t, func(sp *spec.Spec) { silent(sp); sp.Limits.CPU = 2 }, "sleep", "1000")
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

func TestCollectGarbageSaysWhatItBrought(t *testing.T) {
	h, p := hosting(t, func(sp *spec.Spec) {
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
	r, err := h.CollectGarbage(t.Context(), api.CollectGarbageRequest{Process: worker, Timeout: spec.Duration(patience)})
	require.NoError(t, err)
	require.Greater(t, r.BeforeBytes, int64(100<<20))
	require.Less(t, r.AfterBytes, r.BeforeBytes-80<<20)

	_, err = h.CollectGarbage(t.Context(), api.CollectGarbageRequest{Process: unknown})
	requireType(t, err, api.CodeUnavailable)
}

func TestCollectGarbageIsRefusedByWhoCannotBeAsked(t *testing.T) {
	h, _ := hosting(t, silent, "sleep", "1000")
	_, err := h.CollectGarbage(t.Context(), api.CollectGarbageRequest{Process: worker})
	requireType(t, err, api.CodeInvalid)
}
