package gateway

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/dispatch"
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
	require.Equal(t, "p/1", answer.header.Get(api.HeaderWorker))
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
	require.True(t, w.gateway.Drain(t.Context(), "p/1", 1).Drained)
	_, err = w.gateway.CallHook(t.Context(), "p/1", release, "mine")
	require.ErrorIs(t, err, api.ErrDraining)
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/pid", nil).status, "others are served as before")
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
				if _, err := w.gateway.CallPool(context.Background(), "p", dispatch.Request{Method: "echo", Body: []byte("x")}); err != nil {
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
