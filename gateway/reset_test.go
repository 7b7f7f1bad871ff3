package gateway

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

func TestResetCancelsCallsUnderTheLeaseAndClearsTheWorker(t *testing.T) {
	t.Parallel()
	e := open(t, 1)
	lease := e.lease(0, "me")
	require.Equal(t, "1", string(e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).body))
	require.Equal(t, "2", string(e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).body))
	held := background(func() answer { return e.do("POST", "/v1/leases/"+lease.ID+"/call/hold", quoted(e.file("a"))) })
	e.awaitHeld(e.file("a.began"))

	usage, err := e.gateway.Reset(t.Context(), "p/0", 1, lease.ID)
	require.NoError(t, err)
	require.EqualValues(t, 3, usage.Requests)
	require.EqualValues(t, 1, usage.Failed)
	await(t, held).requireProblem(t, 409, api.CodeLeaseFenced)
	e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).requireProblem(t, 409, api.CodeLeaseFenced)

	e.control.with("p/0", func(worker *fakeWorker) { worker.lease = nil })
	next := e.lease(0, "you")
	require.Equal(t, "1", string(e.do("POST", "/v1/leases/"+next.ID+"/call/turn", nil).body),
		"it counts from the beginning")
}

func TestResetErrors(t *testing.T) {
	t.Parallel()
	e := open(t, 1)
	_, err := e.gateway.Reset(t.Context(), "p/7", 1, "p.7.1.1")
	require.ErrorIs(t, err, api.ErrWorkerNotFound)

	lease := e.lease(0, "me")
	require.Equal(t, 200, e.do("POST", "/v1/leases/"+lease.ID+"/call/spoil", nil).status)
	_, err = e.gateway.Reset(t.Context(), "p/0", 1, lease.ID)
	require.ErrorIs(t, err, api.ErrWorkerError)
	require.ErrorContains(t, err, "beyond repair")

	e.control.with("p/0", func(worker *fakeWorker) { worker.lease = nil })
	lease = e.lease(0, "me")
	held := background(func() answer { return e.do("POST", "/v1/leases/"+lease.ID+"/call/stubborn", quoted(e.file("b"))) })
	e.awaitHeld(e.file("b.began"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = e.gateway.Reset(ctx, "p/0", 1, lease.ID)
	require.ErrorIs(t, err, api.ErrDeadlineExceeded)
	e.release(e.file("b"))
	await(t, held)
}

func TestWorkerWithoutLeaseResetIsNotReset(t *testing.T) {
	t.Parallel()
	e := open(t, 1, option{spec: func(sp *spec.Spec) { sp.Pool.Env["NO_RESET"] = "1" }})
	lease := e.lease(0, "me")
	_, err := e.gateway.Reset(t.Context(), "p/0", 1, lease.ID)
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "has no method lease.reset")
}
