package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/spec"
)

func inflight(n int) option {
	return withSpec(func(sp *spec.Spec) { sp.Pool.MaxInflight = n; sp.Pool.Env["THREADS"] = fmt.Sprint(n) })
}

// A host uses its own workers: nobody is asked for a lease.
func TestCallsSpreadEvenlyOverTheWorkers(t *testing.T) {
	e := parallel(t, 4)
	held := make([]<-chan answer, 4)
	for i := range held { // one at a time, so that each takes a worker
		held[i] = e.heldCall("/v1/pools/p", fmt.Sprint(i))
	}
	for i := range held {
		e.finish(fmt.Sprint(i), held[i])
	}
	served := map[string]int{}
	for range 400 {
		response, err := e.gateway.CallPool(t.Context(), "p", pool.Request{Method: "echo"})
		require.NoError(t, err)
		served[response.Worker]++
	}
	for worker, n := range served {
		require.InDelta(t, 100, n, 5, worker)
	}
	require.Len(t, served, 4)
	for _, operation := range []string{"checkout", "checkin", "renew", "state"} {
		require.Zero(t, e.control.count(operation), operation)
	}
}

// waiting counts the calls and the clients in the pool's queue.
func (e *env) waiting() int { return e.gateway.Waiting()["p"] }

func TestAFullQueueRefusesCalls(t *testing.T) {
	e := parallel(t, 1, withSpec(func(sp *spec.Spec) { sp.Queue.Size = 1 }))
	for _, path := range []string{"/v1/pools/p/call/echo", to(0, "echo")} {
		held := e.heldCall("/v1/pools/p", "a")
		waits := e.queued(path, "x")
		full := e.do("POST", path, "x")
		full.requireProblem(t, 429, api.CodeQueueFull)
		require.Equal(t, "1", full.header.Get("Retry-After"))
		require.False(t, full.problem.Started)
		e.finish("a", held)
		require.Equal(t, 200, await(t, waits).status)
		require.Equal(t, 200, e.do("POST", path, "x").status, "the queue is empty")
		require.NoError(t, errors.Join(os.Remove(e.file("a")), os.Remove(e.file("a.began"))))
	}
}

func TestAQueuedCallIsRefusedWhenItsTimeIsOver(t *testing.T) {
	e := parallel(t, 1, withSpec(func(sp *spec.Spec) { sp.Queue.Timeout = spec.Duration(2 * time.Second) }))
	lease := e.taken(pool.CheckoutRequest{Holder: "somebody else"})
	for path, says := range map[string]string{"/v1/pools/p/call/echo": "",
		to(0, "echo"): "no process of p/0 was free within 2s (queue.timeout)"} {
		timedOut := e.do("POST", path, "x")
		timedOut.requireProblem(t, 503, api.CodeQueueTimeout)
		require.False(t, timedOut.problem.Started)
		require.Contains(t, timedOut.problem.Detail, says)
	}
	short := e.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderTimeout, "20")
	short.requireProblem(t, 504, api.CodeDeadlineExceeded)
	require.False(t, short.problem.Started)
	e.ok("DELETE", "/v1/leases/"+lease.ID+"~"+lease.Token, nil)
	e.ok("POST", "/v1/pools/p/call/echo", "x")
}

func TestAPoolBoundsTheTimeOfItsCalls(t *testing.T) {
	e := parallel(t, 1, withSpec(func(sp *spec.Spec) { sp.Call.Timeout = spec.Duration(2 * time.Second) }))
	lease := e.lease(0, "me")
	e.do("POST", "/v1/leases/"+lease.ID+"/call/hold", quoted(e.file("a")), api.HeaderTimeout, "86400000").requireProblem(t,
		504, api.CodeDeadlineExceeded)
	_, err := e.gateway.Call(t.Context(), lease.ID, pool.Request{Method: "hold", Body: []byte(quoted(e.file("b")))})
	require.ErrorIs(t, err, api.ErrDeadlineExceeded)
}

func TestCallsContinueDuringOutageUntilFenced(t *testing.T) {
	e := parallel(t, 1, withConfig(func(c *Config) { c.FenceAfter = 700 * time.Millisecond }))
	e.ok("POST", "/v1/pools/p/call/echo", "x")
	ready := func() answer { return e.send("GET", "/readyz", nil) }
	e.control.setDown(true)
	require.Eventually(t, func() bool { return strings.Contains(string(ready().body), `"control_plane":"lost"`) },
		timeout, poll)
	if a := e.do("POST", "/v1/pools/p/call/echo", "x"); a.status != 200 {
		require.Equal(t, api.CodeUnavailable, a.problem.Code, "calls are rejected only when fenced")
	}
	require.Eventually(t, func() bool {
		return e.do("POST", "/v1/pools/p/call/echo", "x").problem.Code == api.CodeUnavailable
	}, timeout, poll)
	require.Equal(t, 503, ready().status)
	e.control.setDown(false)
	require.Eventually(t, func() bool { return e.do("POST", "/v1/pools/p/call/echo", "x").status == 200 }, timeout, poll)
}

func TestCallsPerMinuteAreLimited(t *testing.T) {
	e := parallel(t, 1, withSpec(func(sp *spec.Spec) { sp.Limits.CallsPerMinute = 5 }))
	for range 5 {
		e.ok("POST", "/v1/pools/p/call/echo", "x")
	}
	a := e.do("POST", "/v1/pools/p/call/echo", "x")
	a.requireProblem(t, 429, api.CodeRateLimited)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Positive(t, a.problem.RetryAfterMS)
	path := "/v1/leases/" + e.lease(0, "me").ID + "/call/echo"
	e.do("POST", path, "x").requireProblem(t, 429, api.CodeRateLimited)
	e.do("POST", path, "x").requireProblem(t, 429, api.CodeRateLimited)
}

func TestStreamArrivesChunkByChunk(t *testing.T) {
	e := parallel(t, 1)
	all := e.do("POST", "/v1/pools/p/call/stream", "3")
	require.Equal(t, "piece 0\npiece 1\npiece 2\n", string(all.body))
	require.Equal(t, "application/octet-stream", all.header.Get("Content-Type"))
	requireConfined(t, all)
	lines := e.do("POST", "/v1/pools/p/call/stream_json", "2")
	require.Equal(t, "{\"piece\":0}\n{\"piece\":1}\n", string(lines.body))
	require.Equal(t, "application/x-ndjson", lines.header.Get("Content-Type"))

	response, err := e.http.Post("http://gateway/v1/pools/p/call/stream_held", "", strings.NewReader(e.file("a")))
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, []string{"chunked"}, response.TransferEncoding)
	reader := bufio.NewReader(response.Body)
	first, err := reader.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "first\n", first, "the chunk arrives while the worker still runs")
	e.release(e.file("a"))
	rest, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Equal(t, "last\n", string(rest))
}

func TestWorkerErrorArrivesComplete(t *testing.T) {
	e := parallel(t, 1)
	a := e.do("POST", "/v1/pools/p/call/fail", nil)
	a.requireProblem(t, 500, api.CodeWorkerError)
	require.True(t, a.problem.Started)
	require.Equal(t, "cannot", a.problem.WorkerError.Code)
	require.JSONEq(t, `{"why":"because"}`, string(a.problem.WorkerError.Data))
	e.do("POST", "/v1/pools/p/call/no_such_method", nil).requireProblem(t, 404, api.CodeMethodNotFound)
}

func TestHeadersPassAndMethodsMayContainSlashes(t *testing.T) {
	e := parallel(t, 1)
	a := e.do("POST", "/v1/pools/p/call/headers", nil, api.HeaderSession, "s1", "Traceparent", clientParent, "X-Mine",
		"yes", "Authorization", "secret")
	require.JSONEq(t, `{"tempool-session":"s1","traceparent":"`+clientParent+`","x-mine":"yes"}`, string(a.body))
	require.Equal(t, "yes", a.header.Get("X-Answer"))
	require.Equal(t, "text/plain", a.header.Get("Content-Type"))
	requireConfined(t, a)
	require.JSONEq(t, `{"a":1}`, string(e.do("POST", "/v1/pools/p/call/tools/call", `{"a":1}`).body))
	e.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderTimeout, "soon").requireProblem(t, 400, api.CodeInvalid)
	e.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderPriority, "10").requireProblem(t, 400, api.CodeInvalid)
	e.do("POST", "/v1/pools/p/call/", "x").requireProblem(t, 400, api.CodeInvalid)
}

func TestSessionPrefersItsWorkerWhenFree(t *testing.T) {
	e := parallel(t, 2)
	first := e.heldCall("/v1/pools/p", "a")
	second := e.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderSession, "s")
	e.finish("a", first)
	mine := second.header.Get(api.HeaderWorker)
	for range 20 {
		require.Equal(t, mine, e.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderSession,
			"s").header.Get(api.HeaderWorker))
	}
	held := e.heldCall("/v1/pools/p", "b", api.HeaderSession, "s")
	other := e.ok("POST", "/v1/pools/p/call/echo", "x", api.HeaderSession, "s")
	require.NotEqual(t, mine, other.header.Get(api.HeaderWorker))
	e.finish("b", held)
}

func TestACallThatIsCutByTheMemoryLimitSaysSo(t *testing.T) {
	e := parallel(t, 1, withSpec(func(sp *spec.Spec) { sp.Limits.Memory = 64 << 20 }))
	hog := e.do("POST", "/v1/pools/p/call/hog", "200")
	hog.requireProblem(t, 502, api.CodeMemoryExceeded)
	require.True(t, hog.problem.Started)
	require.Contains(t, hog.problem.Detail, `exceeding limits.memory = "64MiB"`)
	e.start(0, 2)
	e.do("POST", "/v1/pools/p/call/crash", nil).requireProblem(t, 502, api.CodeWorkerCrashed)
}

func TestProtocolNoneIsCalledOverPlainHTTP(t *testing.T) {
	e := parallel(t, 1, plain(t), withSpec(func(sp *spec.Spec) { sp.Pool.MaxInflight, sp.Pool.MaxMessage = 4, 100_000 }))
	a := e.ok("POST", "/v1/pools/p/call/some/path", "body", "Authorization", "secret")
	require.Equal(t, "/some/path body auth=None", string(a.body))
	require.Equal(t, "p/0", a.header.Get(api.HeaderWorker))
	response, err := e.gateway.CallPool(t.Context(), "p", pool.Request{Method: "x", Body: []byte("y")})
	require.NoError(t, err)
	require.Equal(t, "/x y auth=None", string(response.Body))
	require.ErrorIs(t, errorOf(e.gateway.CallPool(t.Context(), "p", pool.Request{Method: "fail"})), api.ErrWorkerError)
	e.do("POST", "/v1/pools/p/call/x", strings.Repeat("x", 100_001)).requireProblem(t, 413, api.CodePayloadTooLarge)
	require.Equal(t, 503, e.send("POST", "/v1/pools/p/call/fail", nil).status, "the program's own answer")
	taken := e.taken(pool.CheckoutRequest{Holder: "me", WaitMS: timeout.Milliseconds()})
	require.Equal(t, "p.0.1.1", taken.ID)
	path := "/v1/leases/" + taken.ID + "~" + taken.Token
	e.do("POST", path+"/notify/x", "1").requireProblem(t, 400, api.CodeInvalid)
	require.Equal(t, "/x z auth=None", string(e.do("POST", path+"/call/x", "z").body))
	crashed := e.do("POST", path+"/call/crash", nil)
	crashed.requireProblem(t, 502, api.CodeWorkerCrashed)
	require.True(t, crashed.problem.Started)
}

func TestCloseWaitsForCalls(t *testing.T) {
	e := parallel(t, 1)
	held := e.heldCall("/v1/pools/p", "a")
	queued := e.queued("/v1/pools/p/call/echo", "x")
	closed := background(func() error { return e.gateway.Close(context.Background()) })
	await(t, queued).requireProblem(t, 503, api.CodeUnavailable)
	e.finish("a", held)
	require.NoError(t, await(t, closed))
	_, err := e.gateway.CallPool(context.Background(), "p", pool.Request{Method: "echo"})
	require.ErrorIs(t, err, api.ErrUnavailable)
	require.ErrorIs(t, errorOf(os.Stat(e.file("gw.sock"))), os.ErrNotExist)
}
