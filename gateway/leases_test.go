package gateway

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

func TestLeaseCallIsServedByItsWorkerAndCountedAtCheckin(t *testing.T) {
	e := parallel(t, 1)
	out := e.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "me", Session: "s", TTLMS: 30_000})
	require.Equal(t, http.StatusCreated, out.status, "%s", out.body)
	lease := decode[api.Lease](t, out.body)
	require.Equal(t, "me", lease.Holder)
	require.Equal(t, "/v1/leases/"+lease.ID, out.header.Get("Location"))
	path := "/v1/leases/" + lease.ID + "~" + lease.Token

	got := e.ok("POST", path+"/call/echo", "any \x00 bytes")
	require.Equal(t, "any \x00 bytes", string(got.body))
	require.Equal(t, "p/0", got.header.Get(api.HeaderWorker))
	require.Equal(t, "1", got.header.Get(api.HeaderIncarnation))
	require.Equal(t, 500, e.do("POST", path+"/call/fail", nil).status)

	longer := decode[api.Lease](t, e.ok("PUT", path, map[string]int{"ttl_ms": 90_000}).body)
	require.True(t, longer.ExpiresAt.After(lease.ExpiresAt))

	require.Zero(t, e.control.count("state"), "a lease checked out here needs no query")
	e.ok("DELETE", path+"?outcome=error&error=odd", nil)
	e.control.with("p/0", func(worker *fakeWorker) {
		require.Nil(t, worker.lease)
		require.Equal(t, int64(2), worker.usage.Requests)
		require.Equal(t, int64(1), worker.usage.Failed)
		require.Equal(t, []api.Outcome{api.OutcomeError}, worker.outcomes)
	})
	e.do("POST", path+"/call/echo", "x").requireProblem(t, 409, api.CodeLeaseFenced)

	path = "/v1/leases/" + e.lease(0, "me").ID // a fatal error of the worker overrides its holder's outcome
	fatal := e.do("POST", path+"/call/fatal", nil)
	fatal.requireProblem(t, 500, api.CodeWorkerError)
	require.True(t, fatal.problem.WorkerError.Fatal)
	e.ok("DELETE", path+"?outcome=ok", nil)
	require.Equal(t, api.OutcomeClose, e.outcome(0))
}

func TestUnknownLeaseIsVerifiedOnce(t *testing.T) {
	e, lease := openLeased(t)
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			response, err := e.gateway.Call(t.Context(), lease.ID, pool.Request{Method: "echo", Body: []byte("x")})
			if err != nil || string(response.Body) != "x" {
				t.Errorf("a call failed: %v", err)
			}
		})
	}
	calls.Wait()
	require.Equal(t, 1, e.control.count("state"))
}

func TestCallsOfTwoHoldersNeverOverlap(t *testing.T) {
	e := parallel(t, 1, withSpecEnv("THREADS", "2"),
		withSpec(func(sp *spec.Spec) { sp.Call.CancelGrace = spec.Duration(timeout) }))
	first := e.lease(0, "one")
	held := background(func() answer {
		return e.do("POST", "/v1/leases/"+first.ID+"/call/stubborn", quoted(e.file("a")))
	})
	e.awaitHeld(e.file("a.began"))
	_, err := e.control.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: first.ID}) // behind the gateway's back
	require.NoError(t, err)
	second := e.lease(0, "two")
	next := background(func() answer { return e.do("POST", "/v1/leases/"+second.ID+"/call/hold", quoted(e.file("b"))) })

	fenced := await(t, held)
	fenced.requireProblem(t, 409, api.CodeLeaseFenced)
	require.True(t, fenced.problem.Started)
	require.NoFileExists(t, e.file("b.began"), "the worker still runs the first holder's call")
	e.release(e.file("a"))
	e.awaitHeld(e.file("b.began"))
	e.finish("b", next)
}

func TestInvalidLeases(t *testing.T) {
	e := parallel(t, 1)
	e.control.with("p/0", func(worker *fakeWorker) { worker.seq = 5 })
	elsewhere := e.control.add("p/7", 3)
	e.control.with("p/7", func(worker *fakeWorker) {
		worker.host, worker.endpoint, worker.seq = "there", "http://there:7460", 5
	})
	remote := e.lease(7, "me")
	for name, c := range map[string]struct {
		id     string
		status int
		code   api.Code
	}{
		"no lease ID at all":           {"nonsense", 404, api.CodeLeaseNotFound},
		"never granted":                {"p.0.1.99", 404, api.CodeLeaseNotFound},
		"ended long ago":               {"p.0.1.2", 409, api.CodeLeaseFenced},
		"the newest, returned":         {"p.0.1.5", 409, api.CodeLeaseFenced},
		"ended, another one is held":   {"p.7.3.2", 409, api.CodeLeaseFenced},
		"of a worker that is not":      {"p.44.1.1", 404, api.CodeLeaseNotFound},
		"of an incarnation before":     {"p.7.2.1", 409, api.CodeLeaseFenced},
		"on another host":              {remote.ID, 404, api.CodeLeaseNotFound},
		"never granted, on other host": {"p.7.3.9", 404, api.CodeLeaseNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			a := e.do("POST", "/v1/leases/"+c.id+"/call/echo", "x")
			a.requireProblem(t, c.status, c.code)
			require.False(t, a.problem.Started)
			if c.id == remote.ID {
				require.Equal(t, "there", a.problem.Host)
				require.Equal(t, elsewhere.endpoint, a.problem.Endpoint)
			}
		})
	}
	asked, began := e.control.count("state"), time.Now()
	for range 5 {
		e.do("POST", "/v1/leases/"+remote.ID+"/call/echo", "x").requireProblem(t, 404, api.CodeLeaseNotFound)
	}
	require.LessOrEqual(t, e.control.count("state"), asked+1+int(time.Since(began)/time.Second),
		"a refusal is cached for a second")
}

func TestExpiredLeaseIsVerifiedAgain(t *testing.T) {
	e := parallel(t, 1)
	lease := e.taken(pool.CheckoutRequest{Holder: "me", TTLMS: 50})
	id := lease.ID + "~" + lease.Token
	require.Eventually(t, func() bool {
		return e.do("POST", "/v1/leases/"+id+"/call/echo", "x").status == 409
	}, timeout, poll)
	_, err := e.control.Renew(t.Context(), id, time.Minute) // past the gateway
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return e.do("POST", "/v1/leases/"+id+"/call/echo", "x").status == 200
	}, timeout, poll)
}

// A worker whose lease is returned is free for others at once, and Temporal learns of it when it answers again.
func TestAnOutageRejectsUnknownLeasesServesKnownOnesAndHasACheckinPassedOnLater(t *testing.T) {
	e := parallel(t, 2)
	known, fresh := "/v1/leases/"+e.lease(0, "one").ID, e.lease(1, "two")
	e.ok("POST", known+"/call/echo", "x")
	e.control.setDown(true)
	e.ok("POST", known+"/call/echo", "x")
	e.do("POST", "/v1/leases/"+fresh.ID+"/call/echo", "x").requireProblem(t, 503, api.CodeUnavailable)
	e.do("DELETE", known, nil).requireProblem(t, 503, api.CodeUnavailable)
	e.ok("POST", to(0, "echo"), "x")
	e.do("POST", known+"/call/echo", "x").requireProblem(t, 409, api.CodeLeaseFenced)
	e.control.setDown(false)
	require.Eventually(t, func() bool { return e.outcome(0) != "" }, timeout, poll)
	e.control.with("p/0", func(w *fakeWorker) { require.EqualValues(t, 2, w.usage.Requests) })
}

func TestDrainWaitsForCallsAndRejectsNewOnes(t *testing.T) {
	e, lease := openLeased(t)
	held := e.heldCall("/v1/leases/"+lease.ID, "a")

	short, cancel := context.WithTimeout(t.Context(), poll)
	defer cancel()
	require.Equal(t, api.DrainResult{CallsCut: 1}, e.gateway.Drain(short, "p/0", 1))
	e.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").requireProblem(t, 503, api.CodeDraining)

	drained := background(func() api.DrainResult { return e.gateway.Drain(t.Context(), "p/0", 1) })
	e.finish("a", held)
	require.Equal(t, api.DrainResult{}, await(t, drained), "the gateway does not return a client's lease")
	p, _ := e.processes.Get("p/0", 1)
	require.EqualValues(t, 1, p.Served().Usage().Requests)
	require.Zero(t, p.Served().InFlight.Load())
}

func TestCheckinWaitsForCallsInFlight(t *testing.T) {
	e, lease := openLeased(t)
	held := e.heldCall("/v1/leases/"+lease.ID, "a")
	back := background(func() answer { return e.do("DELETE", "/v1/leases/"+lease.ID, nil) })
	require.Eventually(t, func() bool {
		return e.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x", api.HeaderTimeout, "20").status == 409
	}, timeout, poll)
	require.Zero(t, e.control.count("checkin"))
	e.finish("a", held)
	require.Equal(t, 200, await(t, back).status)
	e.control.with("p/0", func(worker *fakeWorker) { require.Equal(t, int64(1), worker.usage.Requests) })
}

func TestCheckoutTriesWorkersOfThisHostFirst(t *testing.T) {
	t.Parallel()
	e := openHere(t, openThere(t), 2)
	held := e.heldCall("/v1/pools/p", "a")
	first := e.taken(pool.CheckoutRequest{Holder: "me"}).Worker
	require.Equal(t, "p/1", e.taken(pool.CheckoutRequest{Holder: "me"}).Worker, "one whose only slot is taken is not free")
	e.release(e.file("a"))
	busy := await(t, held).header.Get(api.HeaderWorker)
	require.ElementsMatch(t, []string{"p/0", "p/2"}, []string{first, busy})
	require.Equal(t, busy, e.taken(pool.CheckoutRequest{Holder: "me"}).Worker)
	require.Equal(t, 3, e.control.count("checkout"), "no checkout was refused")
}

// A client that was granted a lease without a gateway makes its first call while calls of the pool are in flight.
func TestTheFirstCallUnderALeaseWaitsForTheCallsOfThePool(t *testing.T) {
	e := parallel(t, 1, inflight(3))
	held := e.heldCall("/v1/pools/p", "a")
	lease := e.lease(0, "me")
	require.Equal(t, 200, e.do("POST", "/v1/pools/p/call/echo", "x").status, "the lease is not in use yet")
	first := background(func() answer { return e.do("POST", "/v1/leases/"+lease.ID+"/call/hold", quoted(e.file("b"))) })
	require.Eventually(t, func() bool { return e.gateway.Lease("p/0", 1) != nil }, timeout, poll)
	pool := e.queued("/v1/pools/p/call/echo", "y")
	require.NoFileExists(t, e.file("b.began"), "a call of the pool is in flight")
	e.finish("a", held, "it was not cut")
	e.awaitHeld(e.file("b.began"))
	require.Equal(t, 1, e.waiting())
	e.finish("b", first)
	require.Equal(t, 1, e.waiting(), "the lease counts between its calls, too")
	e.ok("DELETE", "/v1/leases/"+lease.ID, nil)
	require.Equal(t, 200, await(t, pool).status)
}

// An agent that has taken a process over does not know who has leased it.
func TestAProcessThatWasTakenOverIsClosedUntilItsWorkflowHasAnswered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		down, leased, recorded bool // Temporal, the worker, and whether the earlier agent knew of the lease
		suspended, serves      bool
	}{
		"free":                       {serves: true},
		"leased, not known here":     {leased: true},
		"leased":                     {leased: true, recorded: true},
		"free, without Temporal":     {down: true, serves: true},
		"leased, without Temporal":   {down: true, leased: true, recorded: true},
		"recorded and returned then": {recorded: true, serves: true},
		"suspended, not known here":  {suspended: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, 0)
			p, err := e.processes.Start(t.Context(), process.Launch{Worker: "p/0", Incarnation: 1, Spec: e.spec})
			require.NoError(t, err)
			e.control.add("p/0", 1)
			lease := e.lease(0, "me")
			var recorded *api.Lease
			if c.recorded {
				recorded = lease
			}
			if !c.leased {
				require.NoError(t, errorOf(e.control.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: lease.ID})))
			}
			if c.suspended {
				e.control.with("p/0", func(worker *fakeWorker) { worker.state = lifecycle.Suspended })
			}
			e.control.setDown(c.down)
			e.gateway.Resume(p, nil, recorded)
			var queued <-chan answer
			if !c.down {
				e.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderTimeout, "100").requireProblem(t, 504,
					api.CodeDeadlineExceeded)
				if c.suspended {
					queued = e.queued(to(0, "echo"), "x")
				}
				e.gateway.Claim("p/0", 1)
			}
			limit := "1000"
			if c.serves {
				limit = fmt.Sprint(timeout.Milliseconds())
			}
			call := e.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderTimeout, limit)
			require.Equal(t, c.serves, call.status == 200, "%s", call.body)
			if c.leased && (c.recorded || !c.down) {
				e.ok("POST", "/v1/leases/"+lease.ID+"/call/echo", "x")
			}
			if c.suspended {
				refused := await(t, queued)
				refused.requireProblem(t, 503, api.CodeSuspended)
				require.Empty(t, refused.header.Get("Retry-After"), "it lasts until an operator ends it")
			}
		})
	}
}

func TestCheckoutWaitsForWaitMS(t *testing.T) {
	e := parallel(t, 1)
	held := e.lease(0, "other")
	e.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "me"}).requireProblem(t, 503, api.CodeNoWorkers)
	e.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "me", WaitMS: 60}).requireProblem(t, 503,
		api.CodeQueueTimeout)
	waiting := e.waits("me", timeout.Milliseconds())
	asked := e.control.count("checkout")
	require.Eventually(t, func() bool { return e.control.count("checkout") > asked+1 }, timeout, poll)
	require.NoError(t, errorOf(e.control.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: held.ID})))
	require.Equal(t, http.StatusCreated, await(t, waiting).status)

	e.do("POST", "/v1/pools/nope/leases", pool.CheckoutRequest{Holder: "me"}).requireProblem(t, 404, api.CodePoolNotFound)
	e.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{}).requireProblem(t, 400, api.CodeInvalid)
	e.do("POST", "/v1/pools/p/leases", `{"holder":"me","wait":5}`).requireProblem(t, 400, api.CodeInvalid)
	e.do("POST", "/v1/pools/p/leases", `{"holder":`).requireProblem(t, 400, api.CodeInvalid)
	e.do("DELETE", "/v1/leases/p.0.1.1?outcome=fine", nil).requireProblem(t, 400, api.CodeInvalid)
}

func TestNotificationReachesTheWorkerOfItsLeaseWhileThatIsTheNewest(t *testing.T) {
	e, lease := openLeased(t)
	e.release(e.file("a"))
	notify := func(method string, headers ...string) answer {
		return e.do("POST", "/v1/leases/"+lease.ID+"/notify"+method, quoted(e.file("a")), headers...)
	}
	response := notify("/hold")
	require.Equal(t, http.StatusAccepted, response.status, "%s", response.body)
	require.Empty(t, response.body)
	e.awaitHeld(e.file("a.began"))
	require.Equal(t, 200, e.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").status, "the worker still serves")
	require.NoError(t, e.gateway.Notify(t.Context(), lease.ID, operator, pool.Request{Method: "echo", Body: []byte("x")}))
	require.EqualValues(t, 3, e.gateway.Snapshot().Pools[0].Workers[0].Requests)

	e.ok("DELETE", "/v1/leases/"+lease.ID, nil)
	notify("/echo").requireProblem(t, 409, api.CodeLeaseFenced)
	notify("").requireProblem(t, 404, "not_found")
	notify("/").requireProblem(t, 400, api.CodeInvalid)
	notify("/echo", api.HeaderTimeout, "soon").requireProblem(t, 400, api.CodeInvalid)
	e.do("POST", "/v1/leases/nonsense/notify/echo", "1").requireProblem(t, 404, api.CodeLeaseNotFound)
}

// A host works whose clock differs from Temporal's.
func TestAHostWithAWrongClockServesAndRenewsSeldom(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{
		"65 s behind": 65 * time.Second, "65 s ahead": -65 * time.Second, "an hour behind": time.Hour,
		"an hour ahead": -time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			// renewed after a minute, less than any skew
			e := open(t, 3, withSpec(func(sp *spec.Spec) { sp.Lease.TTL = spec.Duration(80 * time.Second) }))
			e.control.set(func() { e.control.skew = skew })
			leased := func(ttl time.Duration) (call func() answer) {
				lease := e.taken(pool.CheckoutRequest{Holder: "me", TTLMS: ttl.Milliseconds()})
				return func() answer { return e.do("POST", "/v1/leases/"+lease.ID+"~"+lease.Token+"/call/echo", "x") }
			}
			require.Equal(t, 200, leased(time.Minute)().status)
			ended := leased(time.Second)
			for began := time.Now(); time.Since(began) < 2*time.Second; { // calls of the pool, on the third worker
				e.ok("POST", "/v1/pools/p/call/echo", "x", api.HeaderTimeout, fmt.Sprint(timeout.Milliseconds()))
			}
			require.Zero(t, e.control.count("renew"))
			e.control.setDown(true)
			ended().requireProblem(t, 409, api.CodeLeaseFenced)
		})
	}
}

// The expiry of a lease that the gateway learns of late is that of its grant, whatever the clocks say. A call that
// starts after the loss of Temporal ends with its lease as one that began before it does.
func TestALeaseThatIsSeenLateExpiresOnTime(t *testing.T) {
	t.Parallel()
	const left = 20 * time.Second // when the gateway learns of the lease
	var cut []func()
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} { // of the host's clock behind Temporal's
		e := open(t, 1, inflight(2))
		e.control.set(func() { e.control.skew = skew })
		lease, err := e.control.Checkout(t.Context(), "p/0", tempool.CheckoutOptions{Holder: "me", TTL: time.Hour})
		require.NoError(t, err)
		seen := time.Now()
		e.control.with("p/0", func(w *fakeWorker) { // as if it had been granted long ago
			past := time.Hour - left
			w.lease.GrantedAt, w.lease.ExpiresAt = w.lease.GrantedAt.Add(-past), w.lease.ExpiresAt.Add(-past)
		})
		path := "/v1/leases/" + lease.ID
		e.ok("POST", path+"/call/echo", "x")
		type end struct {
			answer
			at time.Time
		}
		call := func(name string) <-chan end {
			held := e.heldCall(path, name)
			return background(func() end { return end{<-held, time.Now()} })
		}
		before := call("before")
		e.control.setDown(true)
		require.Eventually(t, func() bool { return !e.gateway.Health().ControlPlane }, timeout, poll)
		after := call("after")
		cut = append(cut, func() {
			for _, called := range []<-chan end{before, after} { // and not after an hour, as if granted when it was seen
				ended := await(t, called)
				ended.requireProblem(t, 409, api.CodeLeaseFenced)
				require.Greater(t, ended.at.Sub(seen), left*9/10, "calls are cut when the lease expires, with a skew of %s", skew)
			}
		})
	}
	for _, isCut := range cut { // after one wait for all
		isCut()
	}
}

func TestAPoolThatFencesStopsItsCallsWhenTemporalIsLost(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{time.Hour, time.Millisecond} {
		e := open(t, 2, withSpec(func(sp *spec.Spec) { sp.Pool.OnPartition = spec.PartitionFence }),
			withConfig(func(c *Config) { c.FenceAfter = after }))
		lease := e.taken(pool.CheckoutRequest{Holder: "me"})
		e.ok("POST", "/v1/leases/"+lease.ID+"~"+lease.Token+"/call/echo", "x")
		held := e.heldCall("/v1/pools/p", "a")
		e.control.setDown(true)
		await(t, held).requireProblem(t, 503, api.CodeUnavailable)
		e.do("POST", "/v1/pools/p/call/echo", "x").requireProblem(t, 503, api.CodeUnavailable)
		e.do("POST", "/v1/leases/"+lease.ID+"~"+lease.Token+"/call/echo", "x").requireProblem(t, 503, api.CodeUnavailable)
		e.control.setDown(false)
		require.Eventually(t, func() bool { return e.do("POST", "/v1/pools/p/call/echo", "x").status == 200 }, timeout, poll)
		e.ok("POST", "/v1/leases/"+lease.ID+"~"+lease.Token+"/call/echo", "x")
	}
}

// So is one whose client has left before Temporal answered, and one that Temporal has refused for its rate limit.
func TestACheckinThatTemporalMayNotHaveIsPassedOn(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(ctx context.Context) error{
		"cancelled": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"throttled": func(context.Context) error { return api.Errorf(api.CodeBusy, "Temporal's rate limit is exceeded") },
	} {
		t.Run(name, func(t *testing.T) {
			e, lease := openLeased(t)
			ctx, leave := context.WithCancel(t.Context())
			e.control.refuse = func(ctx context.Context, checkins int) error {
				leave()
				if checkins == 1 || checkins == 2 && name == "throttled" {
					return refuse(ctx)
				}
				return nil
			}
			request := requestOf(ctx, t, "DELETE", "http://gateway/v1/leases/"+lease.ID, nil)
			if answer, err := e.http.Do(request); err == nil {
				answer.Body.Close()
			}
			require.Eventually(t, func() bool { return e.outcome(0) != "" }, timeout, poll)
		})
	}
}
