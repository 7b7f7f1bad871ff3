package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/logging/logtest"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

const gib = 1 << 30

// fakeMemory is a host's memory, set by a test.
type fakeMemory struct {
	available int64 // of 100 GiB
	err       error
}

func (s *fakeMemory) read() (hostMemory, error) {
	return hostMemory{AvailableBytes: s.available * gib, TotalBytes: 100 * gib}, s.err
}

// newMonitor returns a monitor of a host with enough memory, and what it reports of pool p. It has no ticker: the test
// calls step.
func newMonitor(t *testing.T, processes *process.Supervisor) (*pressureMonitor, *fakeMemory, chan api.MemoryPressure) {
	host, reports := &fakeMemory{available: 50}, make(chan api.MemoryPressure, 1000)
	w := newPressureMonitor(host.read, func(pool string, m api.MemoryPressure) {
		assert.Equal(t, "p", pool)
		reports <- m
	}, processes, "h", slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(w.goroutines.Wait)
	return w, host, reports
}

// takeSample gives a process its first sample.
func takeSample(t *testing.T, p *process.Process) {
	t.Helper()
	_, err := p.FreshSample(t.Context())
	require.NoError(t, err)
}

func TestPressureIsReportedAndRelievedFromNoneToCriticalAndBack(t *testing.T) {
	processes := supervisor(t)
	p := start(t, processes, "p/0", func(sp *spec.Spec) { sp.Limits.Memory = gib }, "sleep", "1000")
	takeSample(t, p)
	start(t, processes, "q/3", func(sp *spec.Spec) { sp.Pressure.Enabled = false }, "sleep", "1000")
	w, host, reports := newMonitor(t, processes)
	now := time.Now()
	at := func(s int, available int64) {
		host.available = available
		w.step(t.Context(), now.Add(time.Duration(s)*time.Second))
	}
	requireReport := func(level policy.Level) api.MemoryPressure {
		t.Helper()
		require.Len(t, reports, 1, "one pool gets one report")
		message := <-reports
		require.Equal(t, string(level), message.Level)
		require.NotEmpty(t, message.Reason)
		return message
	}

	at(0, 50)
	require.Empty(t, reports)
	at(2, 12)
	requireReport(policy.PressureMedium)
	require.EqualValues(t, gib, p.Limits().Memory)

	at(4, 3)
	message := requireReport(policy.PressureCritical)
	require.Equal(t, []api.WorkerMemory{{Slot: 0, Incarnation: 1, MemoryBytes: p.LatestSample().MemoryBytes}},
		message.Workers)
	require.EqualValues(t, gib*3/4, p.Limits().Memory, "limits are lowered")

	at(18, 3)
	require.Empty(t, reports, "an unchanged level is reported only every pressureRepeat")
	at(19, 3)
	requireReport(policy.PressureCritical)
	require.EqualValues(t, gib*3/4, p.Limits().Memory, "limits are lowered once")

	at(20, 50)
	require.Empty(t, reports)
	at(34, 50)
	requireReport(policy.PressureCritical) // the level falls only after a minute
	at(80, 50)
	requireReport(policy.PressureNone)
	require.EqualValues(t, gib, p.Limits().Memory, "limits are restored")
	at(200, 50)
	require.Empty(t, reports)
}

func TestAPoolWithoutWorkersGetsAReportOfTheEndOfPressure(t *testing.T) {
	processes := supervisor(t)
	p := start(t, processes, "p/0", func(*spec.Spec) {}, "sleep", "1000")
	w, host, reports := newMonitor(t, processes)
	now := time.Now()
	host.available = 3
	w.step(t.Context(), now)
	require.Equal(t, "critical", next(t, reports).Level)
	_, err := p.Stop(t.Context(), 0)
	require.NoError(t, err)
	host.available = 50
	w.step(t.Context(), now.Add(time.Second))
	w.step(t.Context(), now.Add(62*time.Second))
	message := next(t, reports)
	require.Equal(t, "none", message.Level)
	require.NotNil(t, message.Workers)
	require.Empty(t, message.Workers)
	require.Empty(t, w.underPressure)
}

func TestInObserveModePressureChangesNoLimit(t *testing.T) {
	processes := supervisor(t)
	p := start(t, processes, "p/0", func(sp *spec.Spec) { sp.Limits.Memory, sp.Policy.Mode = gib, spec.PolicyObserve },
		"sleep", "1000")
	takeSample(t, p)
	w, host, reports := newMonitor(t, processes)
	host.available = 3
	w.step(t.Context(), time.Now())
	require.Equal(t, "critical", next(t, reports).Level)
	require.EqualValues(t, gib, p.Limits().Memory)
}

func TestAFailureToReadTheMemoryIsLoggedOnce(t *testing.T) {
	log := &logtest.Log{}
	w, host, _ := newMonitor(t, supervisor(t))
	w.log = slog.New(slog.NewTextHandler(log, nil))
	host.err = errors.New("no such file")
	for range 3 {
		w.step(t.Context(), time.Now())
	}
	require.Equal(t, 1, strings.Count(log.String(), "memory pressure is not monitored"))
	host.err = nil
	w.step(t.Context(), time.Now())
	host.err = errors.New("no such file")
	w.step(t.Context(), time.Now())
	require.Equal(t, 2, strings.Count(log.String(), "memory pressure is not monitored"))
}

func TestALimitIsNotLoweredBelowTheUsage(t *testing.T) {
	p := start(t, supervisor(t), "p/0", func(sp *spec.Spec) { sp.Limits.Memory = gib / 4 }, "python3", "-c",
		"import time\nx = bytearray(210 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('full', "+
			"flush=True)\ntime.sleep(1000)")
	require.Eventually(t, func() bool { return len(p.Logs()) > 0 }, waitTimeout, time.Millisecond)
	takeSample(t, p)
	w, _, _ := newMonitor(t, nil)
	w.lowerLimit(p)
	use := p.LatestSample().MemoryBytes
	require.InDelta(t, 1.1*float64(use), float64(p.Limits().Memory), 1)
	require.Less(t, p.Limits().Memory, spec.Bytes(gib/4))
}

func TestALimitChangedMeanwhileIsNotRestored(t *testing.T) {
	p := start(t, supervisor(t), "p/0", func(sp *spec.Spec) { sp.Limits.Memory = gib }, "sleep", "1000")
	takeSample(t, p)
	w, _, _ := newMonitor(t, nil)
	w.lowerLimit(p)
	_, err := p.ApplyLimits(gib/2, 0)
	require.NoError(t, err)
	w.restoreLimits()
	require.EqualValues(t, gib/2, p.Limits().Memory)
}

func TestTheMonitorEndsWithItsContext(t *testing.T) {
	w, _, _ := newMonitor(t, supervisor(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.run(ctx)
}
