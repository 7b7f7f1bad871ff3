package pool

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

func TestConsecutiveFailedCallsDegradeThenReplace(t *testing.T) {
	const limit = 3
	start := time.Now()
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	for name, c := range map[string]struct {
		calls string // e: unhandled error, o: good, l: unhandled error of a call that had started before all others
		want  string // after each call, d: degrade, r: replace, or nothing
	}{
		"too few":                    {"ee", ".."},
		"enough":                     {"eee", "..d"},
		"as many again":              {"eeeeee", "..d..r"},
		"it is said once":            {"eeeeeeeee", "..d..r..."},
		"a good one between":         {"eeoee", "....."},
		"a good one brings it back":  {"eeeoeee", "..d...d"},
		"late ones count only once":  {"eeelll", "..d..."},
		"late ones and as many more": {"eeellleee", "..d.....r"},
	} {
		var e callErrors
		got := ""
		for i, call := range c.calls {
			started := at(i)
			if call == 'l' {
				started = start
			}
			switch tooMany := e.count(call != 'o', started, at(i), limit); {
			case tooMany && e.replaced:
				got += "r"
			case tooMany:
				got += "d"
			default:
				got += "."
			}
		}
		require.Equal(t, c.want, got, name)
	}
	var off callErrors
	for range 100 {
		require.False(t, off.count(true, start, start, 0))
	}
}

// fail calls a method that must fail.
func (e *env) fail(method string, unhandled bool) {
	e.t.Helper()
	_, err := e.dispatcher.CallPool(e.t.Context(), "p", Request{Method: method})
	var remote *wire.RemoteError
	require.True(e.t, errors.As(err, &remote), err)
	require.Equal(e.t, unhandled, remote.Unhandled)
}

func TestFailedPoolCallsCloseTheWorkerUntilAProbePasses(t *testing.T) {
	e := newEnv(t)
	e.spec.Health.MaxCallErrors = 3
	p := e.start(1)
	u := e.dispatcher.poolState("p").upstreamOf(p)
	for range 10 {
		e.fail("fail", false) // on purpose
	}
	require.Empty(t, e.reported())
	for i, replace := range []bool{false, true} {
		for range 3 {
			e.fail("bug", true)
		}
		require.False(t, locked(u.pool, func() bool { return u.opensLocked("") }))
		require.Eventually(t, func() bool { return len(e.reported()) == i+1 }, timeout, poll)
		last := e.reported()[i]
		require.Equal(t, replace, last.replace)
		require.Contains(t, last.reason, "3 calls in a row failed")
		require.Contains(t, last.reason, "nobody catches this")
		e.dispatcher.SetHealth("p/0", 1, "")
		require.True(t, locked(u.pool, func() bool { return u.opensLocked("") }))
	}
}

func TestCallsUnderAClientsLeaseThatFailAreReported(t *testing.T) {
	e := newEnv(t)
	e.spec.Health.MaxCallErrors = 2
	p := e.start(1)
	u := e.dispatcher.poolState("p").upstreamOf(p)
	ref := api.LeaseRef{Pool: "p", Slot: 0, Incarnation: 1, Seq: 7}
	locked(u.pool, func() bool {
		return u.adoptLocked(api.Lease{ID: leaseID(ref), Worker: "p/0", Holder: "me"}, ref, time.Now().Add(time.Hour))
	})
	for range 4 {
		require.ErrorIs(t, errorOf(e.dispatcher.Call(t.Context(), leaseID(ref), Request{Method: "bug"})), api.ErrWorkerError)
	}
	require.Eventually(t, func() bool { return len(e.reported()) == 2 }, timeout, poll)
	require.NotEqual(t, e.reported()[0].replace, e.reported()[1].replace) // each by a goroutine of its own
}

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
		got := await(t, call)
		require.NoError(t, got.err)
		require.EqualValues(t, 2, got.answer.Incarnation)
	}
	require.Empty(t, e.failures())
}

// TestAnIsolatedWorkerThatStopsByItselfServesWithACleanProcess: one call ends the use of the process that stops.
func TestAnIsolatedWorkerThatStopsByItselfServesWithACleanProcess(t *testing.T) {
	e := newEnv(t)
	stopping := e.file("stop")
	e.spec.Pool.Env["STOP_UNTIL"], e.spec.Isolation.By = stopping, spec.IsolateUse
	proc := e.start(1)
	require.NoError(t, syscall.Kill(proc.Info().PID, syscall.SIGTERM))
	e.awaitBegan(stopping)
	got := await(t, e.call(t.Context(), "echo", "x"))
	require.NoError(t, got.err)
	require.EqualValues(t, 1, got.answer.Incarnation)
	e.letGo(stopping)
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
	require.Eventually(t, func() bool {
		p := e.dispatcher.knownPool("p")
		return p != nil && locked(p, p.queue.Len) > 0
	}, timeout, poll)
	require.NoError(t, syscall.Kill(proc.Info().PID, syscall.SIGTERM))
	await(t, proc.Done())
	e.start(2)
	require.Eventually(t, func() bool { return <-served == 2 }, timeout, poll)
	stop()
	callers.Wait()
	require.Empty(t, e.failures())
}
