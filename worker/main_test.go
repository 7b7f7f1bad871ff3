package worker

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// waitTimeout bounds every wait; only a failing test takes so long.
const waitTimeout = 2 * time.Minute

// next waits for the next of what was sent.
func next[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(waitTimeout):
		require.Fail(t, "nothing was sent")
	}
	return value
}

func supervisor(t *testing.T, change ...func(*process.Config)) *process.Supervisor {
	t.Helper()
	config := process.Config{StateDir: t.TempDir(), HostID: "h", Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&config)
	}
	s, err := process.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		require.NoError(t, s.Close(ctx))
	})
	return s
}

// start runs a program without a protocol as incarnation 1 of a worker of pool p.
func start(t *testing.T, s *process.Supervisor, worker string, change func(*spec.Spec),
	command ...string) *process.Process {
	t.Helper()
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Command, sp.Pool.Protocol = "p", command, spec.ProtocolNone
	sp.Health.Kind, sp.Health.Command = spec.HealthExec, []string{"true"}
	change(&sp)
	p, err := s.Start(t.Context(), process.Launch{Worker: worker, Incarnation: 1, Spec: sp})
	require.NoError(t, err)
	return p
}

// background runs f until the test ends.
func background(t *testing.T, f func(context.Context)) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { f(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}
