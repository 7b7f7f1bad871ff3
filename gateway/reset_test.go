package gateway

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

func TestAResetEndsTheCallsUnderTheLeaseAndHasTheWorkerForgetWhatTheyLeft(t *testing.T) {
	w := open(t, 1)
	lease := w.lease(0, "me")
	require.Equal(t, "1", string(w.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).body))
	require.Equal(t, "2", string(w.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).body))
	held := background(func() answer { return w.do("POST", "/v1/leases/"+lease.ID+"/call/hold", quoted(w.file("a"))) })
	w.awaitFile(w.file("a.began"))

	usage, err := w.gateway.Reset(t.Context(), "p/0", 1, lease.ID)
	require.NoError(t, err)
	require.EqualValues(t, 3, usage.Requests)
	require.EqualValues(t, 1, usage.Failed)
	await(t, held).refusedWith(t, 409, api.CodeLeaseFenced)
	w.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).refusedWith(t, 409, api.CodeLeaseFenced)

	w.book.with("p/0", func(e *entry) { e.lease = nil })
	next := w.lease(0, "you")
	require.Equal(t, "1", string(w.do("POST", "/v1/leases/"+next.ID+"/call/turn", nil).body), "it counts from the beginning")
}

func TestAResetSaysWhyTheWorkerIsNotAsNew(t *testing.T) {
	w := open(t, 1)
	_, err := w.gateway.Reset(t.Context(), "p/7", 1, "p.7.1.1")
	require.ErrorIs(t, err, api.ErrWorkerNotFound)

	lease := w.lease(0, "me")
	require.Equal(t, 200, w.do("POST", "/v1/leases/"+lease.ID+"/call/spoil", nil).status)
	_, err = w.gateway.Reset(t.Context(), "p/0", 1, lease.ID)
	require.ErrorIs(t, err, api.ErrWorkerError)
	require.ErrorContains(t, err, "beyond repair")

	w.book.with("p/0", func(e *entry) { e.lease = nil })
	lease = w.lease(0, "me")
	held := background(func() answer { return w.do("POST", "/v1/leases/"+lease.ID+"/call/stubborn", quoted(w.file("b"))) })
	w.awaitFile(w.file("b.began"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = w.gateway.Reset(ctx, "p/0", 1, lease.ID)
	require.ErrorIs(t, err, api.ErrDeadlineExceeded)
	w.touch(w.file("b"))
	await(t, held)
}

func TestAWorkerWithoutTheMethodIsNotReset(t *testing.T) {
	w := open(t, 1, option{spec: func(sp *spec.Spec) { sp.Pool.Env["NO_RESET"] = "1" }})
	lease := w.lease(0, "me")
	_, err := w.gateway.Reset(t.Context(), "p/0", 1, lease.ID)
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "has no method lease.reset")
}
