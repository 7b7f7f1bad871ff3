package gateway

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

const release = "session.release"

// hook runs a hook and fails the test if that fails.
func (w *world) hook(worker, name, session string) bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	called, err := w.gateway.CallHook(ctx, worker, name, session)
	require.NoError(w.t, err)
	return called
}

func TestAHookRunsOnItsWorkerUnderALeaseOfTheGateway(t *testing.T) {
	w := open(t, 2)
	require.True(t, w.hook("p/1", release, "mine"))
	state, err := w.book.State(t.Context(), "p/1")
	require.NoError(t, err)
	require.Equal(t, w.gateway.Holder(), state.Lease.Holder)
	idle, err := w.book.State(t.Context(), "p/0")
	require.NoError(t, err)
	require.Nil(t, idle.Lease)
	answer := w.do("POST", "/v1/pools/p/call/released", nil)
	require.Equal(t, "p/1", answer.header.Get(HeaderWorker))
	require.Equal(t, `[["mine","mine"]]`, string(answer.body))
}

func TestAHookThatIsNotOfferedIsNoFailure(t *testing.T) {
	w := open(t, 1)
	require.False(t, w.hook("p/0", "session.load", "mine"))
}

func TestAHookSaysWhyItDidNotRun(t *testing.T) {
	w := open(t, 2)
	_, err := w.gateway.CallHook(t.Context(), "p/0", release, "stuck")
	require.ErrorIs(t, err, api.ErrWorkerError)
	require.ErrorContains(t, err, "not this one")
	for _, nowhere := range []string{"p/7", "q/0"} {
		_, err = w.gateway.CallHook(t.Context(), nowhere, release, "mine")
		require.ErrorIs(t, err, api.ErrWorkerNotFound)
	}
	w.lease(1, "somebody")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = w.gateway.CallHook(ctx, "p/1", release, "mine")
	require.ErrorIs(t, err, api.ErrBusy)
	require.Empty(t, w.gateway.knownDesk("p").aimed)
	require.True(t, w.gateway.Drain(t.Context(), "p/1", 1).Drained)
	_, err = w.gateway.CallHook(t.Context(), "p/1", release, "mine")
	require.ErrorIs(t, err, api.ErrDraining)
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/pid", nil).status, "others are served as before")
}

func TestAHookIsNextWhenTheCallInFlightEnds(t *testing.T) {
	w := open(t, 1)
	held := background(func() answer { return w.do("POST", "/v1/pools/p/call/hold", quoted(w.file("a"))) })
	w.awaitFile(w.file("a.began"))
	queued := background(func() answer { return w.do("POST", "/v1/pools/p/call/released", nil) })
	d := w.gateway.knownDesk("p")
	require.Eventually(t, func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.queue.Len() == 1 }, patience, tick)
	hooked := background(func() bool { return w.hook("p/0", release, "mine") })
	require.Eventually(t, func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.aimed["p/0"] == 1 }, patience, tick)
	w.touch(w.file("a"))
	require.True(t, await(t, hooked))
	require.Equal(t, 200, await(t, held).status)
	require.Equal(t, `[["mine","mine"]]`, string(await(t, queued).body), "it was queued before, and served after")
}

func TestHooksUnderLoadStarveNobody(t *testing.T) {
	w := open(t, 2, inflight(2))
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 12 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := w.gateway.CallPool(context.Background(), "p", Request{Method: "echo", Body: []byte("x")}); err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
			}
		})
	}
	for range 100 {
		require.True(t, w.hook("p/0", release, "mine"))
	}
	close(stop)
	callers.Wait()
}
