package pool

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// EndSuspension has said what the suspension ended; its program's hook still runs.
func TestASuspensionThatIsBeingWithdrawnFencesNothing(t *testing.T) {
	e, proc, p := served(t)
	u := p.upstreamOf(proc)
	s := locked(u.pool, func() *suspension { return u.suspendLocked(1, "a look at it") })
	s.cancel()
	result := e.dispatcher.endForSuspension(t.Context(), u, s, api.LeaseID("p", 0, 1, 1))
	require.Equal(t, api.SuspendResult{Withdrawn: true}, result)
	require.Empty(t, e.dispatcher.Suspension("p/0", 1).FencedLease)
}

// The order is repeated while a call that it has cut is still being given up, at last by a process that ends.
func TestACutCallIsCountedOnceAndNotAwaitedFromAProcessThatHasEnded(t *testing.T) {
	e, proc, p := served(t)
	u := p.upstreamOf(proc)
	locked(p, func() int64 { return u.served.InFlight.Add(1) })
	t.Cleanup(func() { locked(p, func() int64 { return u.served.InFlight.Add(-1) }) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		s := locked(p, func() *suspension { return u.suspendLocked(1, "a look at it") })
		require.Equal(t, 1, e.dispatcher.endForSuspension(ctx, u, s, api.LeaseID("p", 0, 1, 1)).CallsCut)
	}
	order := api.SuspendRequest{Process: api.Process{Worker: "p/0", Incarnation: 1}, Generation: 2}
	ended := background(func() api.SuspendResult { return e.dispatcher.Suspend(t.Context(), order) })
	require.Eventually(t, func() bool {
		s := e.dispatcher.Suspension("p/0", 1)
		return s != nil && s.Generation == 2 && s.CallsCut == 1
	}, timeout, poll)
	proc.Kill("killed by the test")
	await(t, ended) // not of calls that nobody answers any more
}

// The lease under which a call of the pool would have run may be fenced after the call has started on a worker, and
// before the worker was sent it.
func TestACallThatWasNotSentToASuspendedWorkerStartsAgain(t *testing.T) {
	e, _, _ := served(t)
	starts := 0
	response, err := e.dispatcher.CallPool(t.Context(), "p",
		Request{Method: "echo", Body: []byte(`"again"`), onStart: func(worker string, incarnation int64) error {
			if starts++; starts == 1 {
				u := e.dispatcher.upstreamOf(worker, incarnation)
				locked(u.pool, func() any { u.cancelLocked(nil, api.ErrSuspended); return nil })
			}
			return nil
		}})
	require.NoError(t, err)
	require.Equal(t, `"again"`, string(response.Body))
	require.Equal(t, 2, starts)
}
