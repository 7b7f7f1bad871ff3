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
	process.RunReaperIfAsked()
	goleak.VerifyTestMain(m)
}

// waitTimeout bounds every wait; only a failing test takes so long.
const waitTimeout = 2 * time.Minute

// sent is a signal that was sent.
type sent struct {
	workflow, signal string
	message          any
}

// fakeTemporal records signals. While down is set, it fails.
type fakeTemporal struct {
	mu      sync.Mutex
	down    error
	lost    error           // is what signals with a request ID fail with although they arrive
	taken   map[string]bool // request IDs
	signals chan sent
}

func newFakeTemporal() *fakeTemporal {
	return &fakeTemporal{taken: map[string]bool{}, signals: make(chan sent, 1000)}
}

func (w *fakeTemporal) SignalWorkflow(_ context.Context, workflowID, _, signal string, message any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down == nil {
		w.signals <- sent{workflowID, signal, message}
	}
	return w.down
}

// signalOnce records the first signal of each request ID.
func (w *fakeTemporal) signalOnce(_ context.Context, workflowID, signal string, message any, requestID string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return w.down
	}
	if !w.taken[requestID] {
		w.taken[requestID] = true
		w.signals <- sent{workflowID, signal, message}
	}
	return w.lost
}

// loseAnswers makes signals fail with err although they arrive.
func (w *fakeTemporal) loseAnswers(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = err
}

func (w *fakeTemporal) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = err
}

// next waits for a signal.
func (w *fakeTemporal) next(t *testing.T) sent {
	t.Helper()
	select {
	case s := <-w.signals:
		return s
	case <-time.After(waitTimeout):
		require.Fail(t, "no signal was sent")
	}
	return sent{}
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

// goroutines runs f until the test ends.
func background(t *testing.T, f func(context.Context)) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { f(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}
