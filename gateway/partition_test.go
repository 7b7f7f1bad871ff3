package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/spec"
)

func TestAPoolThatFencesStopsItsCallsWhenTemporalIsLost(t *testing.T) {
	t.Parallel()
	e := open(t, 2, withSpec(func(sp *spec.Spec) { sp.Pool.OnPartition = spec.PartitionFence }))
	lease := e.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "me"}).lease(t)
	require.Equal(t, 200, e.do("POST", "/v1/leases/"+lease.ID+"~"+lease.Token+"/call/echo", "x").status)
	held := background(func() answer { return e.do("POST", "/v1/pools/p/call/hold", quoted(e.file("a"))) })
	e.awaitHeld(e.file("a.began"))
	e.control.setDown(true)
	await(t, held).requireProblem(t, 503, api.CodeUnavailable)
	e.do("POST", "/v1/pools/p/call/echo", "x").requireProblem(t, 503, api.CodeUnavailable)
	e.do("POST", "/v1/leases/"+lease.ID+"~"+lease.Token+"/call/echo", "x").requireProblem(t, 503, api.CodeUnavailable)
	e.control.setDown(false)
	require.Eventually(t, func() bool { return e.do("POST", "/v1/pools/p/call/echo", "x").status == 200 }, timeout, poll)
	require.Equal(t, 200, e.do("POST", "/v1/leases/"+lease.ID+"~"+lease.Token+"/call/echo", "x").status)
}

// A call that starts after the loss of Temporal ends with its lease as one that began before it does.
func TestACallThatStartsDuringAnOutageEndsWithItsLease(t *testing.T) {
	t.Parallel()
	e := open(t, 1)
	lease := e.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "me", TTLMS: 3_000}).lease(t)
	path := "/v1/leases/" + lease.ID + "~" + lease.Token + "/call/"
	require.Equal(t, 200, e.do("POST", path+"echo", "x").status)
	e.control.setDown(true)
	require.Eventually(t, func() bool { return !e.gateway.Health().ControlPlane }, timeout, poll)
	e.do("POST", path+"hold", quoted(e.file("a"))).requireProblem(t, 409, api.CodeLeaseFenced)
}
