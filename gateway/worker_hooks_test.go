package gateway

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
)

const release = "session.release"

// hook calls a hook. The test fails if the call does.
func (e *env) hook(worker, name, session string) bool {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	called, err := e.gateway.CallHook(ctx, worker, name, session)
	require.NoError(e.t, err)
	return called
}

func TestHookRunsOnItsWorker(t *testing.T) {
	t.Parallel()
	e := open(t, 2)
	require.True(t, e.hook("p/1", release, "mine"))
	answer := e.do("POST", to(1, "released"), nil)
	require.Equal(t, `[["mine","mine"]]`, string(answer.body))
}

func TestHookThatIsNotOfferedIsNoError(t *testing.T) {
	t.Parallel()
	e := open(t, 1)
	require.False(t, e.hook("p/0", "session.load", "mine"))
}

func TestHookErrors(t *testing.T) {
	t.Parallel()
	e := open(t, 2)
	_, err := e.gateway.CallHook(t.Context(), "p/0", release, "stuck")
	require.ErrorIs(t, err, api.ErrWorkerError)
	require.ErrorContains(t, err, "not this one")
	for _, nowhere := range []string{"p/7", "q/0"} {
		_, err = e.gateway.CallHook(t.Context(), nowhere, release, "mine")
		require.ErrorIs(t, err, api.ErrWorkerNotFound)
	}
	lease := e.lease(1, "somebody")
	require.Equal(t, 200, e.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").status)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = e.gateway.CallHook(ctx, "p/1", release, "mine")
	require.ErrorIs(t, err, api.ErrBusy)
	require.True(t, e.gateway.Drain(t.Context(), "p/1", 1).Drained)
	_, err = e.gateway.CallHook(t.Context(), "p/1", release, "mine")
	require.ErrorIs(t, err, api.ErrDraining)
	require.Equal(t, 200, e.do("POST", "/v1/pools/p/call/pid", nil).status, "others are still served")
}

func TestHooksUnderLoadStarveNoCall(t *testing.T) {
	t.Parallel()
	e := open(t, 2, inflight(2))
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
				if _, err := e.gateway.CallPool(context.Background(), "p",
					pool.Request{Method: "echo", Body: []byte("x")}); err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
			}
		})
	}
	for range 100 {
		require.True(t, e.hook("p/0", release, "mine"))
	}
	close(stop)
	callers.Wait()
}
