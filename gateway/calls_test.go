package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/dispatch"
	"github.com/tempool/tempool/spec"
)

func inflight(n int) option {
	return withSpec(func(sp *spec.Spec) { sp.Pool.MaxInflight = n; sp.Pool.Env["THREADS"] = fmt.Sprint(n) })
}

func idleReturn(d time.Duration) option {
	return withSpec(func(sp *spec.Spec) { sp.Lease.IdleReturn = spec.Duration(d) })
}

func TestThousandsOfCallsRideOneLeaseThatComesBackWhenItIdles(t *testing.T) {
	w := open(t, 1, idleReturn(50*time.Millisecond))
	const calls = 2000
	for i := range calls {
		response, err := w.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "echo", Body: []byte{byte(i)}})
		require.NoError(t, err)
		require.Equal(t, []byte{byte(i)}, response.Body)
	}
	require.LessOrEqual(t, len(w.book.history), 3, "the lease is kept from call to call")
	require.Eventually(t, func() bool {
		returned := false
		w.book.with("p/0", func(e *entry) { returned = e.lease == nil })
		return returned
	}, patience, tick)
	w.book.with("p/0", func(e *entry) {
		require.Equal(t, int64(calls), e.usage.Requests)
		require.Zero(t, e.stale)
	})
}

func TestALeaseAlwaysInUseGoesBackNowAndThenWithoutACallBeingLost(t *testing.T) {
	for name, most := range map[string]int{"one call at a time": 1, "calls that overlap": 3} {
		t.Run(name, func(t *testing.T) {
			w := open(t, 1, inflight(most), withConfig(func(c *Config) { c.HoldFor = 40 * time.Millisecond }))
			made, enough := w.callers(4)
			require.Eventually(t, func() bool { return w.book.count("checkin") >= 5 }, patience, tick)
			enough()
			require.Greater(t, made.Load(), int64(w.book.count("checkout")), "most calls ride a lease that is there already")
			require.Eventually(t, func() bool {
				var reported int64
				w.book.with("p/0", func(e *entry) { reported = e.usage.Requests })
				return reported == made.Load()
			}, patience, tick)
		})
	}
}

func TestCallsSpreadEvenlyOverTheWorkers(t *testing.T) {
	w := open(t, 4)
	held := make([]<-chan answer, 4)
	for i := range held { // one at a time, so that each takes a worker
		held[i] = background(func() answer {
			return w.do("POST", "/v1/pools/p/call/hold", quoted(w.file(fmt.Sprint(i))))
		})
		w.awaitFile(w.file(fmt.Sprint(i, ".began")))
	}
	for i := range held {
		w.touch(w.file(fmt.Sprint(i)))
		require.Equal(t, 200, await(t, held[i]).status)
	}
	served := map[string]int{}
	for range 400 {
		response, err := w.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "echo"})
		require.NoError(t, err)
		served[response.Worker]++
	}
	for worker, n := range served {
		require.InDelta(t, 100, n, 5, worker)
	}
	require.Len(t, served, 4)
}

func TestACallThatFindsEveryWorkerTakenWaitsItsTurnByPriority(t *testing.T) {
	w := open(t, 1)
	held := background(func() answer { return w.do("POST", "/v1/pools/p/call/hold", quoted(w.file("a"))) })
	w.awaitFile(w.file("a.began"))
	order := make([]int, 4) // priorities in the order in which the worker served them, which callers need not learn of in that order
	var calls sync.WaitGroup
	for i, priority := range []int{5, 0, 9, 5} {
		calls.Go(func() {
			response, err := w.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "turn", Priority: priority})
			if err != nil {
				t.Errorf("a call failed: %v", err)
				return
			}
			turn, err := strconv.Atoi(string(response.Body))
			if err != nil || turn < 1 || turn > len(order) {
				t.Errorf("the worker answered %q", response.Body)
				return
			}
			order[turn-1] = priority
		})
		require.Eventually(t, func() bool { return w.waiting() == i+1 }, patience, tick)
	}
	w.touch(w.file("a"))
	calls.Wait()
	require.Equal(t, 200, await(t, held).status)
	require.Equal(t, []int{9, 5, 5, 0}, order)
}

// waiting counts the calls in the pool's queue.
func (w *world) waiting() int {
	pools := w.gateway.Snapshot().Pools
	if len(pools) == 0 {
		return 0
	}
	return pools[0].Waiting
}

func TestAFullQueueRefusesAndAWaitEnds(t *testing.T) {
	w := open(t, 1, withSpec(func(sp *spec.Spec) { sp.Queue.Size = 1; sp.Queue.Timeout = spec.Duration(300 * time.Millisecond) }))
	held := background(func() answer { return w.do("POST", "/v1/pools/p/call/hold", quoted(w.file("a"))) })
	w.awaitFile(w.file("a.began"))
	waits := background(func() answer { return w.do("POST", "/v1/pools/p/call/echo", "x") })
	require.Eventually(t, func() bool { return w.waiting() == 1 }, patience, tick)
	full := w.do("POST", "/v1/pools/p/call/echo", "x")
	full.refusedWith(t, 429, api.CodeQueueFull)
	require.Equal(t, "1", full.header.Get("Retry-After"))
	require.False(t, full.problem.Started)
	timedOut := await(t, waits)
	timedOut.refusedWith(t, 503, api.CodeQueueTimeout)
	require.False(t, timedOut.problem.Started)
	short := w.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderTimeout, "20")
	short.refusedWith(t, 504, api.CodeDeadlineExceeded)
	require.False(t, short.problem.Started)
	w.touch(w.file("a"))
	require.Equal(t, 200, await(t, held).status)
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status, "nothing is left behind in the queue")
}

func TestAboveOneInFlightAWorkerServesSeveralCallsAtOnce(t *testing.T) {
	w := open(t, 1, inflight(3))
	var held []<-chan answer
	for i := range 3 {
		held = append(held, background(func() answer { return w.do("POST", "/v1/pools/p/call/hold", quoted(w.file(fmt.Sprint(i)))) }))
	}
	for i := range held {
		w.awaitFile(w.file(fmt.Sprint(i, ".began")))
	}
	require.Equal(t, 1, w.book.count("checkout"))
	for i := range held {
		w.touch(w.file(fmt.Sprint(i)))
	}
	for _, h := range held {
		require.Equal(t, 200, await(t, h).status)
	}
}

func TestACrashInMidCallIsToldAndOthersAreServed(t *testing.T) {
	w := open(t, 2)
	crashed := w.do("POST", "/v1/pools/p/call/crash", nil)
	crashed.refusedWith(t, 502, api.CodeWorkerCrashed)
	require.True(t, crashed.problem.Started)
	gone := crashed.header.Get(api.HeaderWorker)
	for range 20 {
		a := w.do("POST", "/v1/pools/p/call/echo", "x")
		require.Equal(t, 200, a.status, "%s", a.body)
		require.NotEqual(t, gone, a.header.Get(api.HeaderWorker))
	}
}

func TestCallsWaitForTheNextIncarnation(t *testing.T) {
	w := open(t, 1)
	w.do("POST", "/v1/pools/p/call/crash", nil).refusedWith(t, 502, api.CodeWorkerCrashed)
	waits := background(func() answer { return w.do("POST", "/v1/pools/p/call/echo", "x") })
	require.Eventually(t, func() bool { return w.waiting() == 1 }, patience, tick)
	w.start(0, 2)
	a := await(t, waits)
	require.Equal(t, 200, a.status, "%s", a.body)
	require.Equal(t, "2", a.header.Get(api.HeaderIncarnation))
}

func TestSomebodyElsesCheckoutGetsAWorkerThatTheGatewayMerelyHolds(t *testing.T) {
	w := open(t, 1, idleReturn(time.Hour))
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status)
	w.book.with("p/0", func(e *entry) { require.Equal(t, "gateway/here", e.lease.Holder) })
	theirs := w.lease(0, "somebody else")
	w.book.with("p/0", func(e *entry) { require.Equal(t, int64(1), e.usage.Requests) })
	require.Equal(t, 200, w.do("POST", "/v1/leases/"+theirs.ID+"/call/echo", "x").status)

	mine := background(func() answer { return w.do("POST", "/v1/pools/p/call/echo", "mine") })
	require.Eventually(t, func() bool { return w.waiting() == 1 }, patience, tick)
	require.Equal(t, 200, w.do("DELETE", "/v1/leases/"+theirs.ID, nil).status)
	require.Equal(t, "mine", string(await(t, mine).body))
}

func TestAWorkerInUseIsNotRecalled(t *testing.T) {
	w := open(t, 1)
	held := background(func() answer { return w.do("POST", "/v1/pools/p/call/hold", quoted(w.file("a"))) })
	w.awaitFile(w.file("a.began"))
	_, err := w.book.Checkout(t.Context(), "p/0", tempool.CheckoutOptions{Holder: "somebody else"})
	require.ErrorIs(t, err, api.ErrBusy)
	w.touch(w.file("a"))
	require.Equal(t, 200, await(t, held).status)
}

func TestALeaseWhoseGrantWasNeverHeardOfIsGivenUpAndFenced(t *testing.T) {
	w := open(t, 1)
	lost := w.lease(0, w.gateway.Holder())
	result := w.gateway.Recall(t.Context(), "p/0", 1, lost.ID)
	require.True(t, result.Returned)
	require.Equal(t, lost.ID, result.Checkin.LeaseID)
}

func TestADrainGivesTheGatewaysOwnLeaseBack(t *testing.T) {
	w := open(t, 1, idleReturn(time.Hour))
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status)
	result := w.gateway.Drain(t.Context(), "p/0", 1)
	require.True(t, result.Drained)
	require.Equal(t, int64(1), result.Checkin.Usage.Requests)
	_, err := w.book.CheckinNow(t.Context(), *result.Checkin)
	require.NoError(t, err)
	w.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderTimeout, "50").refusedWith(t, 504, api.CodeDeadlineExceeded)
}

func TestALeaseInUseIsRenewedBeforeItExpires(t *testing.T) {
	w := open(t, 1, idleReturn(time.Hour), withSpec(func(sp *spec.Spec) { sp.Lease.TTL = spec.Duration(300 * time.Millisecond) }))
	held := background(func() answer { return w.do("POST", "/v1/pools/p/call/hold", quoted(w.file("a"))) })
	w.awaitFile(w.file("a.began"))
	require.Eventually(t, func() bool { return w.book.count("renew") >= 4 }, patience, tick)
	w.touch(w.file("a"))
	require.Equal(t, 200, await(t, held).status)
	w.book.with("p/0", func(e *entry) { require.True(t, e.lease.ExpiresAt.After(time.Now())) })
}

func TestALeaseThatTheWorkerTookBackIsDropped(t *testing.T) {
	w := open(t, 1, idleReturn(time.Hour), withSpec(func(sp *spec.Spec) { sp.Lease.TTL = spec.Duration(300 * time.Millisecond) }))
	held := background(func() answer { return w.do("POST", "/v1/pools/p/call/hold", quoted(w.file("a"))) })
	w.awaitFile(w.file("a.began"))
	w.book.with("p/0", func(e *entry) { e.lease = nil })
	await(t, held).refusedWith(t, 409, api.CodeLeaseFenced)
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status, "under a new lease")
}

func TestWhileTemporalIsDownCallsGoOnUntilTheFence(t *testing.T) {
	w := open(t, 1, idleReturn(time.Hour), withConfig(func(c *Config) { c.FenceAfter = 700 * time.Millisecond }))
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status)
	ready := func() (string, int) {
		a := w.do("GET", "/readyz", nil)
		return string(a.body), a.status
	}
	w.book.setDown(true)
	require.Eventually(t, func() bool { body, _ := ready(); return strings.Contains(body, `"control_plane":"lost"`) }, patience, tick)
	if a := w.do("POST", "/v1/pools/p/call/echo", "x"); a.status != 200 {
		require.Equal(t, api.CodeUnavailable, a.problem.Code, "only the fence may refuse")
	}
	require.Eventually(t, func() bool { return w.do("POST", "/v1/pools/p/call/echo", "x").problem.Code == api.CodeUnavailable }, patience, tick)
	request, err := w.http.Get("http://gateway/readyz")
	require.NoError(t, err)
	request.Body.Close()
	require.Equal(t, 503, request.StatusCode)
	w.book.setDown(false)
	require.Eventually(t, func() bool { return w.do("POST", "/v1/pools/p/call/echo", "x").status == 200 }, patience, tick)
	usage, _ := w.gateway.Usage("p/0", 1)
	result := w.gateway.Drain(t.Context(), "p/0", 1)
	require.Equal(t, usage, result.Checkin.Usage, "the lease is the same as before, and all was counted")
	require.Equal(t, 1, w.book.count("checkout"))
}

func TestAPoolWithoutWorkersHere(t *testing.T) {
	w := open(t, 0)
	w.do("POST", "/v1/pools/nope/call/echo", "x").refusedWith(t, 404, api.CodePoolNotFound)
	w.do("POST", "/v1/pools/NOPE/call/echo", "x").refusedWith(t, 404, api.CodePoolNotFound)
	w.do("POST", "/v1/pools/p/call/echo", "x").refusedWith(t, 503, api.CodeNoWorkers)
}

func TestAPoolOnOtherHostsIsToldWithTheirGateways(t *testing.T) {
	w := open(t, 0)
	there := w.book.add("p/0", 1)
	there.host, there.endpoint = "there", "http://there:7460"
	a := w.do("POST", "/v1/pools/p/call/echo", "x")
	a.refusedWith(t, 503, api.CodeNoWorkers)
	require.False(t, a.problem.Started)
	require.Equal(t, []dispatch.Peer{{Host: "there", Endpoint: "http://there:7460"}}, a.problem.Gateways)
}

func TestAPoolOnOtherHostsIsToldSo(t *testing.T) {
	w := open(t, 0)
	w.book.add("p/0", 1)
	w.book.with("p/0", func(e *entry) { e.host = "there" })
	a := w.do("POST", "/v1/pools/p/call/echo", "x")
	a.refusedWith(t, 503, api.CodeNoWorkers)
	require.Contains(t, a.problem.Detail, "there")
}

func TestAWorkersCallsAMinuteAreBounded(t *testing.T) {
	w := open(t, 1, withSpec(func(sp *spec.Spec) { sp.Limits.CallsPerMinute = 5 }))
	for range 5 {
		require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status)
	}
	a := w.do("POST", "/v1/pools/p/call/echo", "x")
	a.refusedWith(t, 429, api.CodeRateLimited)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Positive(t, a.problem.RetryAfterMS)
}

func TestAStreamComesPieceByPiece(t *testing.T) {
	w := open(t, 1)
	all := w.do("POST", "/v1/pools/p/call/stream", "3")
	require.Equal(t, "piece 0\npiece 1\npiece 2\n", string(all.body))

	response, err := w.http.Post("http://gateway/v1/pools/p/call/stream_held", "", strings.NewReader(w.file("a")))
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, []string{"chunked"}, response.TransferEncoding)
	lines := bufio.NewReader(response.Body)
	first, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "first\n", first, "it is here while the worker still runs")
	w.touch(w.file("a"))
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Equal(t, "last\n", string(rest))
}

func TestAStreamThatBreaksOffDoesNotLookWhole(t *testing.T) {
	w := open(t, 1)
	response, err := w.http.Post("http://gateway/v1/pools/p/call/stream_then_crash", "", nil)
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = io.ReadAll(response.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestAClientThatGoesAwayCancelsItsCall(t *testing.T) {
	w := open(t, 1)
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, "POST", "http://gateway/v1/pools/p/call/hold", strings.NewReader(quoted(w.file("a"))))
	require.NoError(t, err)
	left := background(func() error {
		response, err := w.http.Do(request)
		if err == nil {
			response.Body.Close()
		}
		return err
	})
	w.awaitFile(w.file("a.began"))
	leave()
	require.ErrorIs(t, await(t, left), context.Canceled)
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status, "the worker is free again, and was not replaced")
	require.NoFileExists(t, w.file("a"))
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	w := open(t, 1, withSpec(func(sp *spec.Spec) { sp.Pool.MaxMessage = 100_000 }))
	large := strings.Repeat("x", 100_001)
	a := w.do("POST", "/v1/pools/p/call/echo", large)
	a.refusedWith(t, 413, api.CodePayloadTooLarge)
	require.False(t, a.problem.Started)
	request, err := http.NewRequest("POST", "http://gateway/v1/pools/p/call/echo", io.MultiReader(strings.NewReader(large))) // chunked
	require.NoError(t, err)
	response, err := w.http.Do(request)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, 413, response.StatusCode)
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", large[1:]).status)
}

func TestAWorkersOwnErrorArrivesWhole(t *testing.T) {
	w := open(t, 1)
	a := w.do("POST", "/v1/pools/p/call/fail", nil)
	a.refusedWith(t, 500, api.CodeWorkerError)
	require.True(t, a.problem.Started)
	require.Equal(t, "cannot", a.problem.WorkerError.Code)
	require.JSONEq(t, `{"why":"because"}`, string(a.problem.WorkerError.Data))
	require.Equal(t, 500, w.do("POST", "/v1/pools/p/call/no_such_method", nil).status)
}

func TestHeadersGoThroughAndMethodsMayHoldSlashes(t *testing.T) {
	w := open(t, 1)
	a := w.do("POST", "/v1/pools/p/call/headers", nil, api.HeaderSession, "s1", "Traceparent", "00-1-2-3", "X-Mine", "yes", "Authorization", "secret")
	require.JSONEq(t, `{"tempool-session":"s1","traceparent":"00-1-2-3","x-mine":"yes"}`, string(a.body))
	require.Equal(t, "yes", a.header.Get("X-Answer"))
	require.Equal(t, "text/plain", a.header.Get("Content-Type"))
	require.JSONEq(t, `{"a":1}`, string(w.do("POST", "/v1/pools/p/call/tools/call", `{"a":1}`).body))
	w.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderTimeout, "soon").refusedWith(t, 400, api.CodeInvalid)
	w.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderPriority, "10").refusedWith(t, 400, api.CodeInvalid)
	w.do("POST", "/v1/pools/p/call/", "x").refusedWith(t, 400, api.CodeInvalid)
	w.do("POST", "/v1/pools/p/call/"+strings.Repeat("m", 1025), "x").refusedWith(t, 400, api.CodeInvalid)
}

type stickiness struct {
	mu   sync.Mutex
	last map[string]string
}

func (s *stickiness) Lookup(_, session string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	worker, found := s.last[session]
	return worker, found
}

func (s *stickiness) Follow(_, session, _, worker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[session] = worker
}

func TestASessionPrefersItsWorkerButDoesNotInsist(t *testing.T) {
	sticky := &stickiness{last: map[string]string{}}
	w := open(t, 2, withConfig(func(c *Config) { c.Affinity = sticky }))
	first := background(func() answer { return w.do("POST", "/v1/pools/p/call/hold", quoted(w.file("a"))) })
	w.awaitFile(w.file("a.began"))
	second := w.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderSession, "s")
	w.touch(w.file("a"))
	require.Equal(t, 200, await(t, first).status)
	mine := second.header.Get(api.HeaderWorker)
	for range 20 {
		require.Equal(t, mine, w.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderSession, "s").header.Get(api.HeaderWorker))
	}
	held := background(func() answer {
		return w.do("POST", "/v1/pools/p/call/hold", quoted(w.file("b")), api.HeaderSession, "s")
	})
	w.awaitFile(w.file("b.began"))
	other := w.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderSession, "s")
	require.Equal(t, 200, other.status)
	require.NotEqual(t, mine, other.header.Get(api.HeaderWorker))
	w.touch(w.file("b"))
	require.Equal(t, 200, await(t, held).status)
}

func TestAProgramThatListensByItselfIsCalledInPlainHTTP(t *testing.T) {
	script, err := filepath.Abs("testdata/server.py")
	require.NoError(t, err)
	w := open(t, 1, withSpec(func(sp *spec.Spec) {
		sp.Pool.Command, sp.Pool.Protocol, sp.Health.Kind = []string{"python3", script}, spec.ProtocolNone, spec.HealthTCP
		sp.Pool.MaxInflight, sp.Pool.MaxMessage = 4, 100_000
	}))
	a := w.do("POST", "/v1/pools/p/call/some/path", "body", "Authorization", "secret")
	require.Equal(t, 200, a.status, "%s", a.body)
	require.Equal(t, "/some/path body auth=None", string(a.body))
	require.Equal(t, "p/0", a.header.Get(api.HeaderWorker))
	response, err := w.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "x", Body: []byte("y")})
	require.NoError(t, err)
	require.Equal(t, "/x y auth=None", string(response.Body))
	_, err = w.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "fail"})
	require.ErrorIs(t, err, api.ErrWorkerError)
	w.do("POST", "/v1/pools/p/call/x", strings.Repeat("x", 100_001)).refusedWith(t, 413, api.CodePayloadTooLarge)
	failed, err := w.http.Post("http://gateway/v1/pools/p/call/fail", "", nil)
	require.NoError(t, err)
	failed.Body.Close()
	require.Equal(t, 503, failed.StatusCode, "the program's own answer")
	lease := background(func() answer {
		return w.do("POST", "/v1/pools/p/leases", dispatch.CheckoutRequest{Holder: "me", WaitMS: 20_000})
	})
	require.Equal(t, 201, await(t, lease).status)
	require.Equal(t, "/x z auth=None", string(w.do("POST", "/v1/leases/p.0.1.2/call/x", "z").body))
	crashed := w.do("POST", "/v1/leases/p.0.1.2/call/crash", nil)
	crashed.refusedWith(t, 502, api.CodeWorkerCrashed)
	require.True(t, crashed.problem.Started)
}

func TestUnderChurnNoCallIsLostOrServedTwice(t *testing.T) {
	w := open(t, 3, inflight(2), idleReturn(time.Millisecond))
	var served, refused atomic.Int64
	var callers sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		callers.Go(func() {
			for i := 0; i < 150; i++ {
				want := fmt.Sprint(i)
				response, err := w.gateway.CallPool(context.Background(), "p", dispatch.Request{Method: "echo", Body: []byte(want)})
				switch {
				case err == nil && string(response.Body) == want:
					served.Add(1)
				case err != nil:
					refused.Add(1)
				default:
					t.Errorf("got %q, want %q", response.Body, want)
				}
			}
		})
	}
	var others sync.WaitGroup
	others.Go(func() { // somebody takes workers away and brings them back
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			lease, err := w.book.Checkout(context.Background(), api.WorkerName("p", n%3), tempool.CheckoutOptions{Holder: "somebody"})
			if err == nil {
				_, _ = w.book.CheckinNow(context.Background(), api.CheckinRequest{LeaseID: lease.ID})
			}
		}
	})
	callers.Wait()
	close(stop)
	others.Wait()
	require.Equal(t, int64(8*150), served.Load())
	require.Zero(t, refused.Load())
	var total int64
	for _, worker := range []string{"p/0", "p/1", "p/2"} {
		usage, inFlight := w.gateway.Usage(worker, 1)
		total += usage.Requests
		require.Zero(t, inFlight)
	}
	require.Equal(t, int64(8*150), total)
}

func TestCloseLetsCallsFinishAndGivesLeasesBack(t *testing.T) {
	w := open(t, 1, idleReturn(time.Hour))
	held := background(func() error {
		_, err := w.gateway.CallPool(context.Background(), "p", dispatch.Request{Method: "hold", Body: []byte(quoted(w.file("a")))})
		return err
	})
	w.awaitFile(w.file("a.began"))
	queued := background(func() error {
		_, err := w.gateway.CallPool(context.Background(), "p", dispatch.Request{Method: "echo"})
		return err
	})
	require.Eventually(t, func() bool { return w.waiting() == 1 }, patience, tick)
	closed := background(func() error { return w.gateway.Close(context.Background()) })
	require.ErrorIs(t, await(t, queued), api.ErrUnavailable)
	w.touch(w.file("a"))
	require.NoError(t, await(t, held))
	require.NoError(t, await(t, closed))
	w.book.with("p/0", func(e *entry) {
		require.Nil(t, e.lease)
		require.Equal(t, int64(1), e.usage.Requests)
	})
	_, err := w.gateway.CallPool(context.Background(), "p", dispatch.Request{Method: "echo"})
	require.ErrorIs(t, err, api.ErrUnavailable)
	_, err = os.Stat(w.file("gw.sock"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
