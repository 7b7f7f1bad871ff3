package activities_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const waitTimeout = 2 * time.Minute // only a failing test takes so long

// newHost returns a host that runs incarnation 1 of worker p/0.
func newHost(t *testing.T, change func(*spec.Spec), command ...string) (*activities.Host, *process.Process) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	s, err := process.Open(t.Context(), process.Config{StateDir: t.TempDir(), HostID: "h", Logger: logger})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		require.NoError(t, s.Close(ctx))
	})
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Command = "p", command
	change(&sp)
	p, err := s.Start(t.Context(), process.Launch{Worker: "p/0", Incarnation: 1, Spec: sp})
	require.NoError(t, err)
	return &activities.Host{
		ID: "h", Processes: s, Temporal: heartbeats(func(context.Context) error { return nil }), Observer: noObserver{},
		Logger: logger, Epoch: func() int64 { return 1 }, DataPlane: idleDataPlane{}, Started: func(*process.Process) {},
		Notify: func(string, string, api.ProcessEvent) {}, Announce: func(string, api.StartedProcess) {},
		Admit:      func(context.Context, api.StartRequest) error { return nil },
		TraceStart: func(context.Context, api.Process) func(error) { return func(error) {} },
	}, p
}

// heartbeats answers heartbeats.
type heartbeats func(context.Context) error

func (h heartbeats) RecordActivityHeartbeat(ctx context.Context, _ []byte, _ ...any) error {
	return h(ctx)
}

func withoutProtocol(sp *spec.Spec) {
	sp.Pool.Protocol, sp.Health.Kind, sp.Health.Command = spec.ProtocolNone, spec.HealthExec, []string{"true"}
}

var (
	worker  = api.Process{Worker: "p/0", Incarnation: 1}
	unknown = api.Process{Worker: "p/9", Incarnation: 1}
)

// noObserver is an Observer that ignores everything.
type noObserver struct{}

func (noObserver) Started(api.Process, process.Info, time.Duration) {}
func (noObserver) Exceeded(api.Process, limits.Violation)           {}
func (noObserver) StartFailed(api.Process, error)                   {}
func (noObserver) Watching(api.WatchRequest)                        {}
func (noObserver) Probed(api.Process, time.Duration, error)         {}
func (noObserver) Sampled(api.Process, *api.Sample, int64)          {}
func (noObserver) Decided(string, activities.Decision)              {}
