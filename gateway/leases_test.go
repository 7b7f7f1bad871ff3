package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/dispatch"
)

func TestACallUnderALeaseIsServedByItsWorkerAndCountedAtItsCheckin(t *testing.T) {
	w := open(t, 1)
	out := w.do("POST", "/v1/pools/p/leases", dispatch.CheckoutRequest{Holder: "me", Session: "s", TTLMS: 30_000})
	require.Equal(t, http.StatusCreated, out.status, "%s", out.body)
	var lease api.Lease
	require.NoError(t, json.Unmarshal(out.body, &lease))
	require.Equal(t, "me", lease.Holder)
	require.Equal(t, "/v1/leases/"+lease.ID, out.header.Get("Location"))

	got := w.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "any \x00 bytes")
	require.Equal(t, http.StatusOK, got.status, "%s", got.body)
	require.Equal(t, "any \x00 bytes", string(got.body))
	require.Equal(t, "p/0", got.header.Get(api.HeaderWorker))
	require.Equal(t, "1", got.header.Get(api.HeaderIncarnation))
	require.Equal(t, 500, w.do("POST", "/v1/leases/"+lease.ID+"/call/fail", nil).status)

	renewed := w.do("PUT", "/v1/leases/"+lease.ID, map[string]int{"ttl_ms": 90_000})
	require.Equal(t, http.StatusOK, renewed.status)
	var longer api.Lease
	require.NoError(t, json.Unmarshal(renewed.body, &longer))
	require.True(t, longer.ExpiresAt.After(lease.ExpiresAt))

	back := w.do("DELETE", "/v1/leases/"+lease.ID+"?outcome=error&error=odd", nil)
	require.Equal(t, http.StatusOK, back.status)
	w.book.with("p/0", func(e *entry) {
		require.Nil(t, e.lease)
		require.Equal(t, int64(2), e.usage.Requests)
		require.Equal(t, int64(1), e.usage.Failed)
		require.Equal(t, []api.Outcome{api.OutcomeError}, e.outcomes)
	})
	w.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").refusedWith(t, 409, api.CodeLeaseFenced)
	require.Zero(t, w.book.count("state"), "a lease taken here needs no question")
}

func TestALeaseNotSeenBeforeIsVerifiedOnce(t *testing.T) {
	w := open(t, 1)
	lease := w.lease(0, "me")
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			response, err := w.gateway.Call(t.Context(), lease.ID, dispatch.Request{Method: "echo", Body: []byte("x")})
			if err != nil || string(response.Body) != "x" {
				t.Errorf("a call failed: %v", err)
			}
		})
	}
	calls.Wait()
	require.Equal(t, 1, w.book.count("state"))
}

func TestAnOlderLeaseIsFencedOnceANewerOneWasSeen(t *testing.T) {
	w := open(t, 1)
	old := w.lease(0, "one")
	require.Equal(t, 200, w.do("POST", "/v1/leases/"+old.ID+"/call/echo", "x").status)
	_, err := w.book.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: old.ID})
	require.NoError(t, err)
	newer := w.lease(0, "two")
	require.Equal(t, 200, w.do("POST", "/v1/leases/"+newer.ID+"/call/echo", "x").status)

	asked := w.book.count("state")
	refused := w.do("POST", "/v1/leases/"+old.ID+"/call/echo", "x")
	refused.refusedWith(t, 409, api.CodeLeaseFenced)
	require.False(t, refused.problem.Started)
	require.Equal(t, asked, w.book.count("state"), "numbers alone tell")
}

func TestCallsOfTwoHoldersNeverOverlap(t *testing.T) {
	w := open(t, 1, withSpecEnv("THREADS", "2"))
	first := w.lease(0, "one")
	held := background(func() answer {
		return w.do("POST", "/v1/leases/"+first.ID+"/call/stubborn", quoted(w.file("a")))
	})
	w.awaitFile(w.file("a.began"))
	_, err := w.book.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: first.ID}) // behind the gateway's back
	require.NoError(t, err)
	second := w.lease(0, "two")
	next := background(func() answer { return w.do("POST", "/v1/leases/"+second.ID+"/call/hold", quoted(w.file("b"))) })

	fenced := await(t, held)
	fenced.refusedWith(t, 409, api.CodeLeaseFenced)
	require.True(t, fenced.problem.Started)
	require.NoFileExists(t, w.file("b.began"), "the worker still runs the first holder's call")
	w.touch(w.file("a"))
	w.awaitFile(w.file("b.began"))
	w.touch(w.file("b"))
	require.Equal(t, 200, await(t, next).status)
}

func TestLeasesThatDoNotCount(t *testing.T) {
	w := open(t, 1)
	w.book.with("p/0", func(e *entry) { e.seq = 5 })
	elsewhere := w.book.add("p/7", 3)
	w.book.with("p/7", func(e *entry) { e.host, e.endpoint = "there", "http://there:7460" })
	remote := w.lease(7, "me")
	for name, c := range map[string]struct {
		id     string
		status int
		code   api.Code
	}{
		"no lease ID at all":           {"nonsense", 404, api.CodeLeaseNotFound},
		"never granted":                {"p.0.1.99", 404, api.CodeLeaseNotFound},
		"ended long ago":               {"p.0.1.2", 409, api.CodeLeaseFenced},
		"of a worker that is not":      {"p.44.1.1", 404, api.CodeLeaseNotFound},
		"of an incarnation before":     {"p.7.2.1", 409, api.CodeLeaseFenced},
		"on another host":              {remote.ID, 404, api.CodeLeaseNotFound},
		"never granted, on other host": {"p.7.3.9", 404, api.CodeLeaseNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.do("POST", "/v1/leases/"+c.id+"/call/echo", "x")
			a.refusedWith(t, c.status, c.code)
			require.False(t, a.problem.Started)
			if c.id == remote.ID {
				require.Equal(t, "there", a.problem.Host)
				require.Equal(t, elsewhere.endpoint, a.problem.Endpoint)
			}
		})
	}
	asked := w.book.count("state")
	for range 5 {
		w.do("POST", "/v1/leases/"+remote.ID+"/call/echo", "x").refusedWith(t, 404, api.CodeLeaseNotFound)
	}
	require.LessOrEqual(t, w.book.count("state"), asked+1, "who insists costs nothing")
}

func TestAnExpiredLeaseIsAskedForAgainAndRefusedWhereItWasNotRenewed(t *testing.T) {
	w := open(t, 1)
	lease, err := w.book.Checkout(t.Context(), "p/0", tempool.CheckoutOptions{Holder: "me", TTL: 50 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, 200, w.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").status)
	require.Eventually(t, func() bool {
		return w.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").status == 409
	}, patience, tick)
	_, err = w.book.Renew(t.Context(), lease.ID, time.Minute) // past the gateway
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return w.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").status == 200
	}, patience, tick)
}

func TestALeaseCannotBeVerifiedWhileTemporalIsDownButAKnownOneServes(t *testing.T) {
	w := open(t, 2)
	known, fresh := w.lease(0, "one"), w.lease(1, "two")
	require.Equal(t, 200, w.do("POST", "/v1/leases/"+known.ID+"/call/echo", "x").status)
	w.book.setDown(true)
	require.Equal(t, 200, w.do("POST", "/v1/leases/"+known.ID+"/call/echo", "x").status)
	w.do("POST", "/v1/leases/"+fresh.ID+"/call/echo", "x").refusedWith(t, 503, api.CodeUnavailable)
}

func TestADrainLetsCallsFinishAndTakesNoNewOne(t *testing.T) {
	w := open(t, 1)
	lease := w.lease(0, "me")
	held := background(func() answer { return w.do("POST", "/v1/leases/"+lease.ID+"/call/hold", quoted(w.file("a"))) })
	w.awaitFile(w.file("a.began"))

	short, cancel := context.WithTimeout(t.Context(), tick)
	defer cancel()
	require.Equal(t, api.DrainResult{Cut: 1}, w.gateway.Drain(short, "p/0", 1))
	w.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").refusedWith(t, 503, api.CodeDraining)

	drained := background(func() api.DrainResult { return w.gateway.Drain(t.Context(), "p/0", 1) })
	w.touch(w.file("a"))
	require.Equal(t, 200, await(t, held).status)
	require.Equal(t, api.DrainResult{Drained: true}, await(t, drained), "somebody else's lease is not the gateway's to give back")
	usage, inFlight := w.gateway.Usage("p/0", 1)
	require.Equal(t, int64(1), usage.Requests)
	require.Zero(t, inFlight)
}

func TestACheckinWaitsForTheCallsInFlight(t *testing.T) {
	w := open(t, 1)
	lease := w.lease(0, "me")
	held := background(func() answer { return w.do("POST", "/v1/leases/"+lease.ID+"/call/hold", quoted(w.file("a"))) })
	w.awaitFile(w.file("a.began"))
	back := background(func() answer { return w.do("DELETE", "/v1/leases/"+lease.ID, nil) })
	require.Eventually(t, func() bool {
		return w.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x", api.HeaderTimeout, "20").status == 409
	}, patience, tick)
	require.Zero(t, w.book.count("checkin"))
	w.touch(w.file("a"))
	require.Equal(t, 200, await(t, held).status)
	require.Equal(t, 200, await(t, back).status)
	w.book.with("p/0", func(e *entry) { require.Equal(t, int64(1), e.usage.Requests) })
}

func TestAWorkerThatAsksToBeReplacedIsWhateverItsHolderSays(t *testing.T) {
	w := open(t, 1)
	lease := w.lease(0, "me")
	a := w.do("POST", "/v1/leases/"+lease.ID+"/call/fatal", nil)
	a.refusedWith(t, 500, api.CodeWorkerError)
	require.True(t, a.problem.WorkerError.Fatal)
	require.Equal(t, 200, w.do("DELETE", "/v1/leases/"+lease.ID+"?outcome=ok", nil).status)
	w.book.with("p/0", func(e *entry) { require.Equal(t, []api.Outcome{api.OutcomeClose}, e.outcomes) })
}

func TestACheckoutTriesFirstWhomNobodyHasAndLastOtherHosts(t *testing.T) {
	w := open(t, 3, idleReturn(time.Hour))
	w.book.add("p/9", 1)
	w.book.with("p/9", func(e *entry) { e.host = "there" })
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status) // the gateway has one now
	var theirs []string
	for range 4 {
		out := w.do("POST", "/v1/pools/p/leases", dispatch.CheckoutRequest{Holder: "me"})
		require.Equal(t, 201, out.status, "%s", out.body)
		var lease api.Lease
		require.NoError(t, json.Unmarshal(out.body, &lease))
		theirs = append(theirs, lease.Worker)
	}
	held := api.WorkerName("p", 0)
	for _, entry := range w.book.history {
		if strings.HasSuffix(entry, "gateway/here") {
			held = strings.ReplaceAll(entry[:3], ".", "/")
		}
	}
	require.ElementsMatch(t, []string{"p/0", "p/1", "p/2", "p/9"}, theirs)
	require.Equal(t, []string{held, "p/9"}, theirs[2:], "what the gateway merely holds comes before other hosts")
	require.Equal(t, 5, w.book.count("checkout"), "nobody was asked in vain")
}

func TestACheckoutWaitsAsLongAsItAsksTo(t *testing.T) {
	w := open(t, 1)
	held := w.lease(0, "other")
	w.do("POST", "/v1/pools/p/leases", dispatch.CheckoutRequest{Holder: "me"}).refusedWith(t, 503, api.CodeNoWorkers)
	w.do("POST", "/v1/pools/p/leases", dispatch.CheckoutRequest{Holder: "me", WaitMS: 60}).refusedWith(t, 503, api.CodeQueueTimeout)
	waiting := background(func() answer {
		return w.do("POST", "/v1/pools/p/leases", dispatch.CheckoutRequest{Holder: "me", WaitMS: 20_000})
	})
	asked := w.book.count("status")
	require.Eventually(t, func() bool { return w.book.count("status") > asked+1 }, patience, tick)
	_, err := w.book.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: held.ID})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, await(t, waiting).status)

	w.do("POST", "/v1/pools/nope/leases", dispatch.CheckoutRequest{Holder: "me"}).refusedWith(t, 404, api.CodePoolNotFound)
	w.do("POST", "/v1/pools/p/leases", dispatch.CheckoutRequest{}).refusedWith(t, 400, api.CodeInvalid)
	w.do("POST", "/v1/pools/p/leases", `{"holder":"me","wait":5}`).refusedWith(t, 400, api.CodeInvalid)
	w.do("POST", "/v1/pools/p/leases", `{"holder":`).refusedWith(t, 400, api.CodeInvalid)
	w.do("DELETE", "/v1/leases/p.0.1.1?outcome=fine", nil).refusedWith(t, 400, api.CodeInvalid)
}
