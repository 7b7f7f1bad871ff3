package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

func quick(c *process.Config) { c.EnforceEvery = 10 * time.Millisecond }

func TestAWorkerOverItsLimitIsAskedToRestartOnceWithTheReason(t *testing.T) {
	control, log := newWire(), &lockedLog{}
	control.fail(errors.New("Temporal is away"))
	p := start(t, supervisor(t, quick), "p/0", func(sp *spec.Spec) { sp.Limits.Processes = 3 }, "sh", "-c", "sleep 1000 & sleep 1000 & sleep 1000 & wait")
	o := overLimit{temporal: control, host: "h", log: slog.New(slog.NewTextHandler(log, nil)), retry: 10 * time.Millisecond}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.watch(t.Context(), p)
	}()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "cannot be asked for yet") }, waitLimit, time.Millisecond)
	control.fail(nil)
	s := control.next(t)
	require.Equal(t, "tempool/p/0", s.workflow)
	require.Equal(t, tempool.SignalRestart, s.signal)
	restart := s.message.(tempool.Restart)
	require.Equal(t, "the agent of host h", restart.By)
	require.Contains(t, restart.Reason, "its tree has 4 processes (limits.processes = 3)")
	<-ended
	require.Empty(t, control.signals)
}

func TestNobodyIsAskedAboutAWorkerWithinItsLimits(t *testing.T) {
	control := newWire()
	p := start(t, supervisor(t, quick), "p/0", func(sp *spec.Spec) { sp.Limits.Processes = 2 }, "sleep", "1000")
	o := overLimit{temporal: control, host: "h", log: slog.New(slog.DiscardHandler), retry: overLimitRetry}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.watch(ctx, p)
	_, err := p.Stop(t.Context(), 0)
	require.NoError(t, err)
	o.watch(t.Context(), p)
	require.Empty(t, control.signals)
}
