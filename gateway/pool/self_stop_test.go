package pool

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

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

// TestAWorkerStopsByItselfUnderLoad: with each answer it gets one more request.
func TestAWorkerStopsByItselfUnderLoad(t *testing.T) {
	e := newEnv(t)
	e.dispatcher.config.Events = events.New("here")
	proc := e.start(1)
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	served := make(chan int64, 1) // the incarnation of the newest answer
	for range 6 {
		callers.Go(func() {
			for ctx.Err() == nil {
				answer, err := e.dispatcher.CallPool(t.Context(), "p", Request{Method: "brief"})
				if err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				select {
				case <-served:
				default:
				}
				select {
				case served <- answer.Incarnation:
				default:
				}
			}
		})
	}
	require.Eventually(t, func() bool { return e.dispatcher.knownPool("p") != nil }, timeout, poll)
	require.Eventually(t, func() bool { p := e.dispatcher.knownPool("p"); return locked(p, p.queue.Len) > 0 }, timeout,
		poll)
	require.NoError(t, syscall.Kill(proc.Info().PID, syscall.SIGTERM))
	select {
	case <-proc.Done():
	case <-time.After(timeout):
		require.FailNow(t, "the worker has not stopped")
	}
	e.start(2)
	require.Eventually(t, func() bool { return <-served == 2 }, timeout, poll)
	stop()
	callers.Wait()
	require.Empty(t, e.failures())
}
