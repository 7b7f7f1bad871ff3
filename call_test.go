package tempool

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/tracecontext"
	"github.com/tempool/tempool/internal/transport"
	"github.com/tempool/tempool/spec"
)

func TestACallGoesThroughAGatewayOverTCPOrAUnixSocket(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			g := newFakeGateway(t, network)
			c := clientOf(t, g)
			var answer Answer
			o := CallOptions{Session: "anna", Priority: 7, Timeout: time.Minute, Header: http.Header{"X-Trace": {"t"}},
				Answered: func(a Answer) { answer = a }}
			var out struct{ Name string }
			require.NoError(t, c.Pool("p").With(o).Call(t.Context(), "tools/call it", map[string]string{"name": "you"}, &out))
			require.Equal(t, "you", out.Name)
			request, body := g.last()
			require.Equal(t, "/v1/pools/p/call/tools/call%20it", request.URL.EscapedPath())
			require.JSONEq(t, `{"name":"you"}`, body)
			require.Equal(t, "application/json", request.Header.Get("Content-Type"))
			require.Equal(t, []string{"anna", "7", "t"}, []string{request.Header.Get("Tempool-Session"),
				request.Header.Get("Tempool-Priority"), request.Header.Get("X-Trace")})
			require.Equal(t, "p/0", answer.Worker)
			require.EqualValues(t, 3, answer.Incarnation)
			require.Equal(t, g.endpoint, answer.Endpoint)
			raw, err := c.Pool("p").CallRaw(t.Context(), "echo", []byte("\x00 not JSON"))
			require.NoError(t, err)
			require.Equal(t, "\x00 not JSON", string(raw))
			require.NoError(t, c.Pool("p").Call(t.Context(), "echo", nil, nil))
			_, body = g.last()
			require.Empty(t, body, "nil means no body")
		})
	}
}

func TestRequestsCarryTheTraceOfTheirContext(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	g := newFakeGateway(t, "tcp")
	pool := clientOf(t, g).Pool("p")
	ctx := trace.ContextWithSpanContext(t.Context(), tracecontext.Parse(parent, "vendor=1"))
	require.NoError(t, pool.Call(ctx, "echo", nil, nil))
	request, _ := g.last()
	require.Equal(t, []string{parent, "vendor=1"},
		[]string{request.Header.Get("Traceparent"), request.Header.Get("Tracestate")})
	require.NoError(t, pool.With(CallOptions{Header: http.Header{"Traceparent": {"own"}}}).Call(ctx, "echo", nil, nil))
	request, _ = g.last()
	require.Equal(t, []string{"own", ""}, []string{request.Header.Get("Traceparent"), request.Header.Get("Tracestate")},
		"what the caller sets has precedence")
	require.NoError(t, pool.Call(t.Context(), "echo", nil, nil))
	request, _ = g.last()
	require.NotContains(t, request.Header, "Traceparent")
}

func TestACallOfOneWorkerNamesIt(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	worker := clientOf(t, g).Pool("p").With(CallOptions{Session: "anna"}).Worker(7)
	var out string
	require.NoError(t, worker.Call(t.Context(), "tools/call", "you", &out))
	require.Equal(t, "you", out)
	request, _ := g.last()
	require.Equal(t, "/v1/pools/p/workers/7/call/tools/call", request.URL.Path)
	require.Equal(t, "anna", request.Header.Get("Tempool-Session"))
	raw, err := worker.CallRaw(t.Context(), "echo", []byte("x"))
	require.NoError(t, err)
	require.Equal(t, "x", string(raw))
	for piece, err := range worker.Stream(t.Context(), "echo", []byte("y")) {
		require.NoError(t, err)
		require.Equal(t, "y", string(piece))
	}
}

func TestTheContextsDeadlineIsSentAsTimeout(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	pool := clientOf(t, g).Pool("p")
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for timeout, most := range map[time.Duration]time.Duration{0: time.Hour, time.Minute: time.Minute,
		2 * time.Hour: time.Hour} {
		_, err := pool.With(CallOptions{Timeout: timeout}).CallRaw(ctx, "m", nil)
		require.NoError(t, err)
		request, _ := g.last()
		ms, err := strconv.Atoi(request.Header.Get("Tempool-Timeout"))
		require.NoError(t, err)
		require.InDelta(t, most.Milliseconds(), ms, 60_000)
		require.LessOrEqual(t, int64(ms), most.Milliseconds())
	}
	_, err := pool.CallRaw(t.Context(), "m", nil)
	require.NoError(t, err)
	request, _ := g.last()
	require.Empty(t, request.Header.Get("Tempool-Timeout"))

	var refused atomic.Bool
	g.answer = func(w http.ResponseWriter, _ *http.Request) {
		if !refused.Swap(true) {
			refuse(w, api.CodeNoWorkers, false)
		}
	}
	_, err = pool.With(CallOptions{Timeout: time.Minute}).CallRaw(t.Context(), "m", nil)
	require.NoError(t, err)
	request, _ = g.last()
	ms, err := strconv.Atoi(request.Header.Get("Tempool-Timeout"))
	require.NoError(t, err)
	require.LessOrEqual(t, int64(ms), (time.Minute - roundPause/2).Milliseconds(), "what is left after the first round")
}

func TestATimeoutBoundsTheWaitForThePoolsFirstWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(&fakeTemporal{query: func(context.Context) (any, error) {
			return api.PoolStatus{Pool: "p", Spec: spec.Default(), Scale: &api.ScaleStatus{}}, nil // it starts no worker
		}}, "default")
		defer c.Close()
		began := time.Now()
		err := c.Pool("p").With(CallOptions{Timeout: 2 * time.Second}).Call(t.Context(), "m", nil, nil)
		require.ErrorIs(t, err, api.ErrNoWorkers)
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

// expiringContext is a context whose deadline is when expired is closed.
type expiringContext struct {
	context.Context
	expired chan struct{}
}

func (c expiringContext) Done() <-chan struct{} { return c.expired }

func (c expiringContext) Err() error {
	select {
	case <-c.expired:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	entered := make(chan struct{}, 2)
	g.answer = func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	}
	pool := clientOf(t, g).Pool("p")
	expiring := expiringContext{t.Context(), make(chan struct{})}
	go func() {
		<-entered
		close(expiring.expired)
	}()
	err := pool.Call(expiring, "slow", nil, nil)
	require.ErrorIs(t, err, api.ErrDeadlineExceeded)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, transport.MayHaveStarted(err))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	err = pool.Call(ctx, "slow", nil, nil)
	require.ErrorIs(t, err, api.ErrCancelled)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 2, g.served(), "a started call is not retried")
	err = pool.Call(ctx, "slow", nil, nil)
	require.ErrorIs(t, err, api.ErrCancelled)
	require.False(t, transport.MayHaveStarted(err), "nothing was sent")
}

func TestOnlyAnUnstartedCallIsRetriedElsewhere(t *testing.T) {
	for _, c := range []struct {
		code    api.Code
		started bool
		again   bool
	}{
		{api.CodeUnavailable, false, true}, {api.CodeNoWorkers, false, true}, {api.CodeQueueFull, false, true},
		{api.CodeWorkerCrashed, false, true},
		{api.CodeUnavailable, true, false}, {api.CodeWorkerCrashed, true, false}, {api.CodeWorkerError, true, false},
		{api.CodeQueueFull, true, false},
		{api.CodeDeadlineExceeded, false, false}, {api.CodeQueueTimeout, false, false}, {api.CodeRateLimited, false, false},
		{api.CodeInvalid, false, false}, {api.CodePoolNotFound, false, false}, {api.CodePayloadTooLarge, false, false},
	} {
		t.Run(fmt.Sprintf("%s, started %t", c.code, c.started), func(t *testing.T) {
			bad, good := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
			bad.answer = refusing(c.code, c.started)
			client := clientOf(t, bad, good)
			chooseFirst(t, client, bad)
			out, err := client.Pool("p").CallRaw(t.Context(), "m", []byte("hi"))
			require.Equal(t, 1, bad.served())
			if c.again {
				require.NoError(t, err)
				require.Equal(t, "hi", string(out))
				return
			}
			require.Zero(t, good.served())
			var coded *api.Error
			require.ErrorAs(t, err, &coded)
			require.Equal(t, c.code, coded.Code)
			require.Equal(t, c.started, coded.Started)
			require.Equal(t, 1500*time.Millisecond, coded.RetryAfter)
			require.ErrorIs(t, err, &api.Error{Code: c.code})
		})
	}
}

func TestADeadGatewayIsSkipped(t *testing.T) {
	dead, live := newFakeGateway(t, "unix"), newFakeGateway(t, "tcp")
	client := clientOf(t, dead, live)
	dead.server.Close()
	for range 50 {
		require.NoError(t, client.Pool("p").Call(t.Context(), "m", 1, nil))
	}
	require.Equal(t, 50, live.served())
	live.server.Close()
	client.transport.Close() // else the call may go out on a connection whose end was not noticed yet
	err := client.Pool("p").Call(t.Context(), "m", 1, nil)
	require.ErrorIs(t, err, api.ErrUnavailable)
	require.False(t, transport.MayHaveStarted(err), "a refused connection starts no call")
}

func TestACallLostAfterSendingIsNotRetried(t *testing.T) {
	first, second := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
	first.answer = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	client := clientOf(t, first, second)
	chooseFirst(t, client, first)
	err := client.Pool("p").Call(t.Context(), "m", 1, nil)
	require.ErrorIs(t, err, api.ErrUnavailable)
	require.True(t, transport.MayHaveStarted(err))
	require.Zero(t, second.served())
}

func TestAnAnswerThatIsNotAGatewaysIsUnavailable(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	g.answer = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }
	err := clientOf(t, g).Pool("p").Call(t.Context(), "m", nil, nil)
	require.ErrorIs(t, err, api.ErrUnavailable)
	require.Equal(t, 1, g.served(), "a redirect is not followed")
}

func TestInvalidCallsFailBeforeSending(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	c := clientOf(t, g)
	require.ErrorIs(t, c.Pool("p").Call(t.Context(), "", nil, nil), api.ErrInvalid)
	require.ErrorIs(t, c.Pool("p").Call(t.Context(), "m", func() {}, nil), api.ErrInvalid)
	require.ErrorIs(t, c.Pool("../x").Call(t.Context(), "m", nil, nil), api.ErrPoolNotFound)
	require.ErrorIs(t, (&Lease{Lease: api.Lease{ID: "p.0.1.1"}}).Call(t.Context(), "m", nil, nil), api.ErrInvalid)
	require.Zero(t, g.served())
}

func TestAStreamYieldsChunksAsTheyArrive(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	next := make(chan struct{})
	g.answer = func(w http.ResponseWriter, _ *http.Request) {
		for i := range 3 {
			<-next
			_, _ = fmt.Fprintf(w, "chunk %d;", i)
			_ = http.NewResponseController(w).Flush()
		}
	}
	pool := clientOf(t, g).Pool("p")
	var chunks []string
	go func() { next <- struct{}{} }()
	for chunk, err := range pool.Stream(t.Context(), "m", strings.NewReader("body")) {
		require.NoError(t, err)
		chunks = append(chunks, string(chunk))
		if len(chunks) < 3 { // the gateway sends the next chunk only after this one was read
			next <- struct{}{}
		}
	}
	require.Equal(t, []string{"chunk 0;", "chunk 1;", "chunk 2;"}, chunks)
	_, body := g.last()
	require.Equal(t, "body", body)
}

func TestLeavingAStreamEarlyCancelsTheCall(t *testing.T) {
	g, other := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
	cancelled := make(chan struct{})
	g.answer = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		cancelled <- struct{}{}
	}
	client := clientOf(t, g, other)
	chooseFirst(t, client, g)
	for range 3 { // were one of these calls still in flight, the balancer would choose the other gateway by the third
		for chunk, err := range client.Pool("p").Stream(t.Context(), "m", nil) {
			require.NoError(t, err)
			require.Equal(t, "first", string(chunk))
			break
		}
		select {
		case <-cancelled:
		case <-time.After(testTimeout):
			require.FailNow(t, "the call was not cancelled")
		}
	}
	require.Zero(t, other.served())
}

func TestAReaderIsResentOnlyIfUnread(t *testing.T) {
	dead, live := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
	client := clientOf(t, dead, live)
	dead.server.Close()
	chooseFirst(t, client, dead)
	for chunk, err := range client.Pool("p").Stream(t.Context(), "m", io.LimitReader(strings.NewReader("whole"), 5)) {
		require.NoError(t, err)
		require.Equal(t, "whole", string(chunk))
	}
	require.Equal(t, 1, live.served())
	refused, never := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
	refused.answer = refusing(api.CodeNoWorkers, false)
	client = clientOf(t, refused, never)
	chooseFirst(t, client, refused)
	for _, err := range client.Pool("p").Stream(t.Context(), "m", io.LimitReader(strings.NewReader("whole"), 5)) {
		require.ErrorIs(t, err, api.ErrNoWorkers)
	}
	require.Zero(t, never.served(), "a consumed body cannot be sent again")
}

// elsewhere refers to another gateway, and to one whose address is not known.
const elsewhere = `{"code":"no_workers","detail":"elsewhere","started":false,` +
	`"gateways":[{"host":"b","endpoint":%q},{"host":"c","endpoint":""}]}`

func TestAReferralToAnotherGatewayIsFollowed(t *testing.T) {
	known, other := newFakeGateway(t, "tcp"), newFakeGateway(t, "unix")
	known.answer = answering(http.StatusServiceUnavailable, elsewhere, other.endpoint)
	client := clientOf(t, known)
	for range 2 {
		var out string
		require.NoError(t, client.Pool("p").Call(t.Context(), "echo", "there", &out))
		require.Equal(t, "there", out)
	}
	require.Equal(t, 2, other.served())
}

func TestTheTokenGoesOnlyToGatewaysOfTheRoster(t *testing.T) {
	known, other := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
	known.answer = answering(http.StatusServiceUnavailable, elsewhere, other.endpoint)
	client := dialed(t, Options{Gateways: []string{known.endpoint}, GatewayToken: "secret secret secret"})
	require.ErrorIs(t, client.Pool("p").Call(t.Context(), "echo", "there", nil), api.ErrNoWorkers)
	require.Zero(t, other.served(), "any program can name an address in an error")
	known.roster = other.endpoint
	require.NoError(t, client.Pool("p").Call(t.Context(), "echo", "there", nil))
	for _, g := range []*fakeGateway{known, other} {
		request, _ := g.last()
		require.Equal(t, "Bearer secret secret secret", request.Header.Get("Authorization"))
	}
}

const leaseElsewhere = `{"code":"lease_not_found","detail":"it is on another host","started":false,"host":"b","endpoint":%q}`

func TestALeaseStaysWithItsGatewayUntilThatRefersToAnother(t *testing.T) {
	granting, serving := newFakeGateway(t, "unix"), newFakeGateway(t, "tcp")
	client := clientOf(t, granting)
	granting.endpoint = "http://192.0.2.1:7460" // the gateway's own name does not resolve here
	lease, err := client.Pool("p").TryCheckout(t.Context(), CheckoutOptions{Holder: "me", Session: "s", TTL: time.Minute})
	require.NoError(t, err)
	require.Equal(t, granting.endpoint, lease.Endpoint)
	require.NoError(t, lease.With(CallOptions{Session: "other"}).Call(t.Context(), "echo", 1, nil))
	called, _ := granting.last()
	require.Equal(t, "s", called.Header.Get(api.HeaderSession), "the session of the checkout")
	granting.answer = answering(http.StatusNotFound, leaseElsewhere, "http://127.0.0.1:1") // it cannot be reached
	require.ErrorIs(t, lease.Call(t.Context(), "echo", 1, nil), api.ErrUnavailable)
	require.NoError(t, lease.Renew(t.Context()), "the lease stays where it was answered")
	granting.answer = answering(http.StatusNotFound, leaseElsewhere, serving.endpoint)
	serving.answer = answering(http.StatusInternalServerError,
		`{"code":"worker_error","detail":"d","started":true,"worker_error":{"code":"x","message":"m"}}`)
	require.ErrorIs(t, lease.Call(t.Context(), "echo", 1, nil), api.ErrWorkerError)
	granting.server.Close()
	serving.answer = nil
	require.NoError(t, lease.Call(t.Context(), "echo", 1, nil), "the worker has answered there")
	require.Equal(t, 2, serving.served())
}
