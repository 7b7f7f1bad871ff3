package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/logging/logtest"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

const gib = 1 << 30

// shortage is a host's memory as a test wants it.
type shortage struct {
	available int64 // of 100 GiB
	err       error
}

func (s *shortage) look() (HostMemory, error) {
	return HostMemory{AvailableBytes: s.available * gib, TotalBytes: 100 * gib}, s.err
}

// pressed is a watch on a host with plenty, and no rhythm of its own.
func pressed(t *testing.T, processes *process.Supervisor) (*pressureMonitor, *shortage, *wire) {
	host, control := &shortage{available: 50}, newWire()
	w := newPressureMonitor(host.look, control, processes, "h", slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(w.goroutines.Wait)
	return w, host, control
}

// measured waits until a process has a sample.
func measured(t *testing.T, p *process.Process) {
	t.Helper()
	_, err := p.FreshSample(t.Context())
	require.NoError(t, err)
}

func TestPressureWalksFromNoneToCriticalAndBack(t *testing.T) {
	processes := supervisor(t)
	p := start(t, processes, "p/0", func(sp *spec.Spec) { sp.Limits.Memory = gib }, "sleep", "1000")
	measured(t, p)
	start(t, processes, "q/3", func(sp *spec.Spec) { sp.Pressure.Enabled = false }, "sleep", "1000")
	w, host, control := pressed(t, processes)
	now := time.Now()
	at := func(s int, available int64) {
		host.available = available
		w.step(t.Context(), now.Add(time.Duration(s)*time.Second))
	}
	told := func(level policy.Level) api.MemoryPressure {
		t.Helper()
		require.Len(t, control.signals, 1, "one pool is told, and once")
		s := control.next(t)
		require.Equal(t, "tempool/p", s.workflow)
		require.Equal(t, api.SignalMemoryPressure, s.signal)
		message := s.message.(api.MemoryPressure)
		require.Equal(t, string(level), message.Level)
		require.NotEmpty(t, message.Reason)
		return message
	}

	at(0, 50)
	require.Empty(t, control.signals)
	at(2, 12)
	told(policy.PressureMedium)
	require.EqualValues(t, gib, p.Limits().Memory)

	at(4, 3)
	message := told(policy.PressureCritical)
	require.Equal(t, []api.WorkerMemory{{Slot: 0, Incarnation: 1, RSSBytes: p.LatestSample().RSSBytes}}, message.Workers)
	require.Equal(t, []int64{3 * gib, 100 * gib}, []int64{message.AvailableBytes, message.TotalBytes})
	require.EqualValues(t, gib*3/4, p.Limits().Memory, "limits are lowered")

	at(18, 3)
	require.Empty(t, control.signals, "the same is not told all the time")
	at(19, 3)
	told(policy.PressureCritical)
	require.EqualValues(t, gib*3/4, p.Limits().Memory, "and lowered once")

	at(20, 50)
	require.Empty(t, control.signals)
	at(34, 50)
	told(policy.PressureCritical) // it has to be better for a minute
	at(80, 50)
	told(policy.PressureNone)
	require.EqualValues(t, gib, p.Limits().Memory, "limits are given back")
	at(200, 50)
	require.Empty(t, control.signals)
}

func TestAPoolWhoseWorkersAreStoppedHearsOfTheEndOfPressure(t *testing.T) {
	processes := supervisor(t)
	p := start(t, processes, "p/0", func(*spec.Spec) {}, "sleep", "1000")
	w, host, control := pressed(t, processes)
	now := time.Now()
	host.available = 3
	w.step(t.Context(), now)
	require.Equal(t, "critical", control.next(t).message.(api.MemoryPressure).Level)
	_, err := p.Stop(t.Context(), 0)
	require.NoError(t, err)
	host.available = 50
	w.step(t.Context(), now.Add(time.Second))
	w.step(t.Context(), now.Add(62*time.Second))
	message := control.next(t).message.(api.MemoryPressure)
	require.Equal(t, "none", message.Level)
	require.NotNil(t, message.Workers)
	require.Empty(t, message.Workers)
	require.Empty(t, w.underPressure)
}

func TestAPoolThatCannotBeToldIsToldAtTheNextLook(t *testing.T) {
	processes := supervisor(t)
	start(t, processes, "p/0", func(*spec.Spec) {}, "sleep", "1000")
	w, host, control := pressed(t, processes)
	control.fail(errors.New("Temporal is away"))
	host.available = 12
	now := time.Now()
	w.step(t.Context(), now)
	control.fail(nil)
	w.step(t.Context(), now.Add(2*time.Second))
	require.Equal(t, "medium", control.next(t).message.(api.MemoryPressure).Level)
	w.step(t.Context(), now.Add(4*time.Second))
	require.Empty(t, control.signals)
}

func TestObservedPressureChangesNothingHere(t *testing.T) {
	processes := supervisor(t)
	p := start(t, processes, "p/0", func(sp *spec.Spec) { sp.Limits.Memory, sp.Policy.Mode = gib, spec.PolicyObserve }, "sleep", "1000")
	measured(t, p)
	w, host, control := pressed(t, processes)
	host.available = 3
	w.step(t.Context(), time.Now())
	require.Equal(t, "critical", control.next(t).message.(api.MemoryPressure).Level)
	require.EqualValues(t, gib, p.Limits().Memory)
}

func TestAHostThatTellsNothingIsReportedOnce(t *testing.T) {
	log := &logtest.Log{}
	w, host, _ := pressed(t, supervisor(t))
	w.log = slog.New(slog.NewTextHandler(log, nil))
	host.err = errors.New("no such file")
	for range 3 {
		w.step(t.Context(), time.Now())
	}
	require.Equal(t, 1, strings.Count(log.String(), "memory pressure is not looked after"))
	host.err = nil
	w.step(t.Context(), time.Now())
	host.err = errors.New("no such file")
	w.step(t.Context(), time.Now())
	require.Equal(t, 2, strings.Count(log.String(), "memory pressure is not looked after"))
}

func TestALimitIsNotLoweredBelowWhatIsUsed(t *testing.T) {
	p := start(t, supervisor(t), "p/0", func(sp *spec.Spec) { sp.Limits.Memory = gib / 4 }, "python3", "-c",
		"import time\nx = bytearray(210 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('full', flush=True)\ntime.sleep(1000)")
	require.Eventually(t, func() bool { return len(p.Logs()) > 0 }, waitLimit, time.Millisecond)
	measured(t, p)
	w, _, _ := pressed(t, nil)
	w.lower(p)
	use := p.LatestSample().RSSBytes
	require.InDelta(t, 1.1*float64(use), float64(p.Limits().Memory), 1)
	require.Less(t, p.Limits().Memory, spec.Bytes(gib/4))
}

func TestALimitThatSomebodyElseChangedStays(t *testing.T) {
	p := start(t, supervisor(t), "p/0", func(sp *spec.Spec) { sp.Limits.Memory = gib }, "sleep", "1000")
	measured(t, p)
	w, _, _ := pressed(t, nil)
	w.lower(p)
	limits := p.Limits()
	limits.Memory = gib / 2
	_, err := p.ApplyLimits(limits)
	require.NoError(t, err)
	w.restore()
	require.EqualValues(t, gib/2, p.Limits().Memory)
}

func TestTheLoopEndsWithItsContext(t *testing.T) {
	w, _, _ := pressed(t, supervisor(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.run(ctx)
}
