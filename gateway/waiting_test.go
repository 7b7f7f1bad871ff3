package gateway

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// inLine starts a call, or a client that waits for a lease, and returns when it is in the queue.
func inLine[T any](e *env, client func() T) <-chan T {
	e.t.Helper()
	before := e.waiting()
	got := background(client)
	require.Eventually(e.t, func() bool { return e.waiting() == before+1 }, timeout, poll)
	return got
}

// queued starts a call that waits for a worker.
func (e *env) queued(path string, body any, headers ...string) <-chan answer {
	e.t.Helper()
	return inLine(e, func() answer { return e.do("POST", path, body, headers...) })
}

// waits starts a client that waits for a lease over HTTP.
func (e *env) waits(holder string, waitMS int64) <-chan answer {
	e.t.Helper()
	return inLine(e, func() answer {
		return e.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: holder, WaitMS: waitMS})
	})
}

// waitsUntil starts a client that waits until ctx ends. It has no lease then.
func (e *env) waitsUntil(ctx context.Context, holder string) <-chan *api.Lease {
	e.t.Helper()
	return inLine(e, func() *api.Lease {
		lease, _ := e.gateway.Checkout(ctx, "p",
			pool.CheckoutRequest{Holder: holder, WaitMS: pool.MaxCheckoutWait.Milliseconds()})
		return lease
	})
}

func (a answer) lease(t testing.TB) api.Lease {
	t.Helper()
	require.Equal(t, 201, a.status, "%s", a.body)
	return decode[api.Lease](t, a.body)
}

func TestClientsThatWaitForALeaseCostFewCheckouts(t *testing.T) {
	e := parallel(t, 10)
	for slot := range 100 {
		if slot >= 10 {
			e.control.add(api.WorkerName("p", slot), 1)
			e.control.with(api.WorkerName("p", slot), func(worker *fakeWorker) { worker.host = "there" })
		}
		e.lease(slot, "somebody else")
	}
	before, began := e.control.count("checkout"), time.Now()
	const wait = 4 * time.Second
	var clients sync.WaitGroup
	for i := range 50 {
		clients.Go(func() {
			a := e.do("POST", "/v1/pools/p/leases",
				pool.CheckoutRequest{Holder: fmt.Sprint("client ", i), WaitMS: wait.Milliseconds()})
			if a.problem.Code != api.CodeQueueTimeout {
				t.Errorf("client %d: %s", i, a.body)
			}
		})
	}
	clients.Wait()
	asked, took := e.control.count("checkout")-before, time.Since(began)
	t.Logf("%d checkouts in %s", asked, took)
	require.Less(t, float64(asked)/took.Seconds(), 50.0)
	require.Positive(t, asked)
}

func TestClientsGetLeasesInTheOrderOfTheirArrival(t *testing.T) {
	e := parallel(t, 1)
	first := e.taken(pool.CheckoutRequest{Holder: "first"})
	var clients []<-chan answer
	for i := range 5 {
		clients = append(clients, e.waits(fmt.Sprint("client ", i), timeout.Milliseconds()))
	}
	e.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "pushy"}).requireProblem(t, 503, api.CodeNoWorkers)
	lease := first
	for i, client := range clients {
		asked := e.control.count("checkout")
		e.ok("DELETE", "/v1/leases/"+lease.ID+"~"+lease.Token, nil)
		lease = await(t, client).lease(t)
		require.Equal(t, fmt.Sprint("client ", i), lease.Holder)
		require.Equal(t, asked+1, e.control.count("checkout"), "a returned lease is not a guess")
	}
}

// A client that waits and the queued calls of the pool take turns.
func TestAClientThatWaitsGetsAWorkerThatCallsKeepBusy(t *testing.T) {
	e := parallel(t, 1)
	made, stop := e.callers(4)
	require.Eventually(t, func() bool { return made.Load() > 20 }, timeout, poll)
	for range 5 {
		lease := e.taken(pool.CheckoutRequest{Holder: "me", WaitMS: timeout.Milliseconds()})
		e.ok("POST", "/v1/leases/"+lease.ID+"~"+lease.Token+"/call/echo", "x")
		e.ok("DELETE", "/v1/leases/"+lease.ID+"~"+lease.Token, nil)
		before := made.Load()
		require.Eventually(t, func() bool { return made.Load() > before+20 }, timeout, poll, "calls continue")
	}
	stop()
}

// A lease that nobody has costs the worker its process when it expires.
func TestALeaseGrantedToAClientThatHasLeftGoesBack(t *testing.T) {
	t.Parallel()
	for _, waitMS := range []int64{0, 60_000} {
		e := open(t, 1)
		release := make(chan struct{})
		e.control.set(func() { e.control.blocked = release })
		ctx, leave := context.WithCancel(t.Context())
		client := background(func() *api.Lease {
			lease, _ := e.gateway.Checkout(ctx, "p", pool.CheckoutRequest{Holder: "me", WaitMS: waitMS})
			return lease
		})
		require.Eventually(t, func() bool { return e.control.count("blocked checkout") > 0 }, timeout, poll)
		leave()
		close(release)
		require.Nil(t, await(t, client))
		require.Eventually(t, func() bool { return e.outcome(0) != "" }, timeout, poll)
	}
}

func TestTheLineOfClientsIsBounded(t *testing.T) {
	e := parallel(t, 1, withSpec(func(sp *spec.Spec) { sp.Queue.Size = 2 }))
	e.taken(pool.CheckoutRequest{Holder: "somebody else"})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	one, two := e.waitsUntil(ctx, "one"), e.waitsUntil(ctx, "two")
	require.Equal(t, 2, e.gateway.Snapshot().Pools[0].WaitingClients)
	e.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "three", WaitMS: 100}).requireProblem(t, 429,
		api.CodeQueueFull)
	leave()
	require.Nil(t, await(t, one))
	require.Nil(t, await(t, two))
	e.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "three", WaitMS: 100}).requireProblem(t, 503,
		api.CodeQueueTimeout)
}

func TestARepeatedRequestWithItsTokenGetsTheLeaseThatItsHolderHas(t *testing.T) {
	e := parallel(t, 2)
	token := api.NewLeaseToken()
	ask := func(holder, token string, waitMS int64) answer {
		return e.do("POST", "/v1/pools/p/leases",
			pool.CheckoutRequest{Holder: holder, RequestID: "1", WaitMS: waitMS, Token: token})
	}
	mine := ask("me", token, 0).lease(t)
	for _, waitMS := range []int64{0, 1000} {
		again := ask("me", token, waitMS).lease(t)
		require.Equal(t, []string{mine.ID, token}, []string{again.ID, again.Token})
	}
	require.NotEqual(t, mine.ID, ask("you", token, 1000).lease(t).ID, "a request id counts for its holder")
	ask("me", "", 0).requireProblem(t, 503, api.CodeNoWorkers)
	require.Equal(t, 2, e.control.count("checkout"))
	for _, wrong := range []string{"short", token + "~", longText} {
		ask("me", wrong, 0).requireProblem(t, 400, api.CodeInvalid)
	}
	path := "/v1/leases/" + mine.ID + "~" + token
	e.do("DELETE", path+"?outcome=error&error="+longText, nil).requireProblem(t, 400, api.CodeInvalid)
	e.ok("DELETE", path, nil)
}

func TestAClientIsServedHereWhileTheRosterIsRead(t *testing.T) {
	e := parallel(t, 1)
	held := e.taken(pool.CheckoutRequest{Holder: "earlier"})
	roster := make(chan struct{})
	e.control.set(func() { e.control.roster = roster })
	defer close(roster)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := e.waitsUntil(ctx, "me")
	e.do("DELETE", "/v1/leases/"+held.ID+"~"+held.Token, nil)
	got := await(t, client)
	require.NotNil(t, got)
	require.Equal(t, "p/0", got.Worker)
}

func TestAClientThatWaitsDuringAnOutageClosesNoWorker(t *testing.T) {
	e := parallel(t, 1)
	e.control.setDown(true)
	require.Eventually(t, func() bool { return !e.gateway.Health().ControlPlane }, timeout, poll)
	e.gateway.SetHealth("p/0", 1, "it is ill") // until the client waits
	client := e.waits("me", 60_000)
	e.gateway.SetHealth("p/0", 1, "")
	for range 100 {
		e.ok("POST", "/v1/pools/p/call/echo", "x")
	}
	require.Zero(t, e.control.count("checkout"))
	e.control.setDown(false)
	require.Equal(t, "p/0", await(t, client).lease(t).Worker)
}

// following makes the pool follow the demand.
func following() option { return withSpec(func(sp *spec.Spec) { sp.Scale.Max = 4 }) }

// demand is that for the only pool.
func (e *env) demand() policy.Demand {
	if all := e.gateway.Demand(); len(all) == 1 {
		return all[0].Demand
	}
	return policy.Demand{}
}

func TestCallsThatWaitForAFirstWorkerAreReferredToItsHost(t *testing.T) {
	e := parallel(t, 0, following())
	call := background(func() answer { return e.do("POST", "/v1/pools/p/call/echo", "x") })
	require.Eventually(t, func() bool { return e.demand().Waiting == 1 }, timeout, poll)
	e.control.add("p/0", 1)
	e.control.with("p/0", func(w *fakeWorker) { w.host, w.endpoint = "there", "http://there:7460" })
	a := await(t, call)
	a.requireProblem(t, 503, api.CodeNoWorkers)
	require.False(t, a.problem.Started)
	require.Equal(t, []api.Peer{{Host: "there", Endpoint: "http://there:7460"}}, a.problem.Gateways)
}

func TestACallWithoutAnyWorkerWaitsForOneAndDemandCountsCallsAndLeases(t *testing.T) {
	e := parallel(t, 0, following())
	first := background(func() answer { return e.do("POST", "/v1/pools/p/call/echo", "x") })
	require.Eventually(t, func() bool { return e.demand() == policy.Demand{Waiting: 1, NoWorkers: true} }, timeout, poll)
	require.Equal(t, 4, e.gateway.Demand()[0].Spec.Scale.Max)
	e.start(0, 1)
	require.Equal(t, 200, await(t, first).status)
	require.Eventually(t, func() bool { return e.demand() == policy.Demand{} }, timeout, poll)
	e.start(1, 1)
	call := e.heldCall("/v1/pools/p", "held")
	lease := e.taken(pool.CheckoutRequest{Holder: "me", WaitMS: 5000})
	require.Equal(t, policy.Demand{Calls: 1, Leases: 1}, e.demand())
	waiting := e.waits("another", 60_000)
	queued := background(func() answer { return e.do("POST", "/v1/pools/p/call/echo", "x") })
	require.Eventually(t, func() bool { return e.demand() == policy.Demand{Calls: 1, Leases: 2, Waiting: 1} }, timeout,
		poll)
	e.finish("held", call)
	e.do("DELETE", "/v1/leases/"+lease.ID+"~"+lease.Token, nil)
	await(t, waiting).lease(t)
	require.Equal(t, 200, await(t, queued).status)
	require.Eventually(t, func() bool { return e.demand() == policy.Demand{Leases: 1} }, timeout, poll)
}
