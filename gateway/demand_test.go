package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// following makes the pool follow the demand.
func following() option { return withSpec(func(sp *spec.Spec) { sp.Scale.Max = 4 }) }

// demand is that for the only pool.
func (e *env) demand() policy.Demand {
	if all := e.gateway.Demand(); len(all) == 1 {
		return all[0].Demand
	}
	return policy.Demand{}
}

func TestACallWithoutAnyWorkerWaitsForOneAndIsDemand(t *testing.T) {
	t.Parallel()
	e := open(t, 0, following())
	call := background(func() answer { return e.do("POST", "/v1/pools/p/call/echo", "x") })
	require.Eventually(t, func() bool { return e.demand() == policy.Demand{Waiting: 1, NoWorkers: true} }, timeout, poll)
	require.Equal(t, 4, e.gateway.Demand()[0].Spec.Scale.Max)
	e.start(0, 1)
	require.Equal(t, 200, await(t, call).status)
	require.Eventually(t, func() bool { return e.demand() == policy.Demand{} }, timeout, poll)
}

func TestCallsThatWaitForAFirstWorkerAreReferredToItsHost(t *testing.T) {
	t.Parallel()
	e := open(t, 0, following())
	call := background(func() answer { return e.do("POST", "/v1/pools/p/call/echo", "x") })
	require.Eventually(t, func() bool { return e.demand().Waiting == 1 }, timeout, poll)
	e.control.add("p/0", 1)
	e.control.with("p/0", func(w *fakeWorker) { w.host, w.endpoint = "there", "http://there:7460" })
	a := await(t, call)
	a.requireProblem(t, 503, api.CodeNoWorkers)
	require.False(t, a.problem.Started)
	require.Equal(t, []api.Peer{{Host: "there", Endpoint: "http://there:7460"}}, a.problem.Gateways)
}

func TestDemandCountsCallsAndLeases(t *testing.T) {
	t.Parallel()
	e := open(t, 2, following())
	held := e.file("held")
	call := background(func() answer { return e.do("POST", "/v1/pools/p/call/hold", quoted(held)) })
	require.Eventually(t, func() bool { return e.demand().Calls == 1 }, timeout, poll)
	lease := e.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "me", WaitMS: 5000}).lease(t)
	require.Equal(t, policy.Demand{Calls: 1, Leases: 1}, e.demand())
	waiting := e.waits("another", 60_000)
	queued := background(func() answer { return e.do("POST", "/v1/pools/p/call/echo", "x") })
	require.Eventually(t, func() bool { return e.demand() == policy.Demand{Calls: 1, Leases: 2, Waiting: 1} }, timeout,
		poll)
	e.awaitHeld(held + ".began")
	e.release(held)
	require.Equal(t, 200, await(t, call).status)
	e.do("DELETE", "/v1/leases/"+lease.ID+"~"+lease.Token, nil)
	await(t, waiting).lease(t)
	require.Equal(t, 200, await(t, queued).status)
	require.Eventually(t, func() bool { return e.demand() == policy.Demand{Leases: 1} }, timeout, poll)
}
