package dispatch

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/events"
)

// TestAWorkerThatStopsByItselfGetsNoFurtherCall: somebody has sent it SIGTERM, which its program handles, for a while.
func TestAWorkerThatStopsByItselfGetsNoFurtherCall(t *testing.T) {
	e := newEnv(t)
	e.dispatcher.config.Events = events.New("here")
	stopping := e.file("stop")
	e.spec.Pool.Env["STOP_UNTIL"] = stopping
	proc := e.start(1)
	e.echo()
	require.NoError(t, syscall.Kill(proc.Info().PID, syscall.SIGTERM))
	e.awaitBegan(stopping)
	waiting := []<-chan result{e.queued(t.Context(), 1, "turn", "[]"), e.queued(t.Context(), 2, "turn", "[]")}
	e.letGo(stopping)
	<-proc.Done()
	e.start(2)
	for _, call := range waiting {
		got := e.await(call)
		require.NoError(t, got.err)
		require.EqualValues(t, 2, got.answer.Incarnation)
	}
	require.Empty(t, e.failures())
}
