package gateway

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/tracecontext"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/worker/traceexport"
)

const (
	clientTrace  = "0af7651916cd43dd8448eb211c80319c"
	clientSpan   = "b7ad6b7169203331"
	clientParent = "00-" + clientTrace + "-" + clientSpan + "-01"
)

// spans are those that a gateway has ended.
type spans struct {
	t *testing.T
	*tracetest.SpanRecorder
}

func traceInto(t *testing.T) (spans, option) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	return spans{t, recorder}, withConfig(func(c *Config) { c.Tracer = provider.Tracer("test") })
}

// openTraced is parallel with the spans of the gateway.
func openTraced(t *testing.T, workers int, options ...option) (*env, spans) {
	t.Helper()
	s, tracing := traceInto(t)
	return parallel(t, workers, append(options, tracing)...), s
}

// named returns the spans with this name, after waiting for the first.
func (s spans) named(name string) []sdktrace.ReadOnlySpan {
	s.t.Helper()
	var found []sdktrace.ReadOnlySpan
	require.Eventually(s.t, func() bool { // a server's span ends after its client has the answer
		found = nil
		for _, span := range s.Ended() {
			if span.Name() == name {
				found = append(found, span)
			}
		}
		return len(found) > 0
	}, timeout, poll, "no span %q", name)
	return found
}

func (s spans) one(name string) sdktrace.ReadOnlySpan {
	s.t.Helper()
	found := s.named(name)
	require.Len(s.t, found, 1)
	return found[0]
}

// attributes returns those of a span as text.
func attributes(span sdktrace.ReadOnlySpan) map[string]string {
	texts := map[string]string{}
	for _, a := range span.Attributes() {
		texts[string(a.Key)] = a.Value.String()
	}
	return texts
}

const poolCall = "POST /v1/pools/{pool}/call/{method...}"

func TestACallIsTracedFromItsClientToTheWorker(t *testing.T) {
	e, s := openTraced(t, 1)
	a := e.ok("POST", "/v1/pools/p/call/headers", nil, "Traceparent", clientParent, "Tracestate", "vendor=1")
	server, call := s.one(poolCall), s.one("p/headers")

	require.Equal(t, trace.SpanKindServer, server.SpanKind())
	require.Equal(t, clientTrace, server.SpanContext().TraceID().String())
	require.Equal(t, clientSpan, server.Parent().SpanID().String())
	require.True(t, server.Parent().IsRemote())
	require.Subset(t, attributes(server), map[string]string{
		"http.route": "/v1/pools/{pool}/call/{method...}", "http.request.method": "POST", "http.response.status_code": "200",
		"tempool.pool": "p", "tempool.host": "here",
	})
	require.Equal(t, trace.SpanKindClient, call.SpanKind())
	require.Equal(t, server.SpanContext().SpanID(), call.Parent().SpanID())
	require.Equal(t, map[string]string{
		"tempool.pool": "p", "tempool.worker": "p/0", "tempool.incarnation": "1", "tempool.started": "true",
		"rpc.system.name": "tempool", "rpc.method": "p/headers",
	}, attributes(call))
	require.Equal(t, codes.Unset, call.Status().Code)

	seen := decode[map[string]string](t, a.body)
	require.Equal(t, "00-"+clientTrace+"-"+call.SpanContext().SpanID().String()+"-01", seen["traceparent"],
		"the worker's spans are below the call's")
	require.Equal(t, "vendor=1", seen["tracestate"])

	s.Reset() // a call of this process has a span of its own
	require.NoError(t, errorOf(e.gateway.CallPool(t.Context(), "p", pool.Request{Method: "pid"})))
	found := s.named("p/pid")
	require.Len(t, found, 2)
	require.Equal(t, found[1].SpanContext().SpanID(), found[0].Parent().SpanID())
	require.False(t, found[1].Parent().IsValid())
}

func TestTheWaitForAWorkerIsASpan(t *testing.T) {
	e, s := openTraced(t, 1)
	held := e.heldCall("/v1/pools/p", "a")
	s.Reset()
	e.do("POST", "/v1/pools/p/call/pid", nil, api.HeaderTimeout, "20").requireProblem(t, 504, api.CodeDeadlineExceeded)
	wait := s.one("wait for a worker")
	require.Equal(t, codes.Error, wait.Status().Code)
	require.Subset(t, attributes(wait), map[string]string{"error.type": "deadline_exceeded", "tempool.started": "false"})

	s.Reset()
	queued := e.queued("/v1/pools/p/call/pid", nil)
	e.finish("a", held)
	require.Equal(t, 200, await(t, queued).status)
	wait, call := s.one("wait for a worker"), s.one("p/pid")
	require.Equal(t, call.Parent().SpanID(), wait.Parent().SpanID(), "both are below the request")
	require.True(t, wait.EndTime().After(wait.StartTime()))
	require.Equal(t, wait.EndTime(), call.StartTime(), "the call begins when the wait ends")
	require.Equal(t, "p/0", attributes(wait)["tempool.worker"])
}

func TestFailuresAreTheStatusOfSpans(t *testing.T) {
	e, s := openTraced(t, 1)
	e.do("POST", "/v1/pools/p/call/fail", nil).requireProblem(t, 500, api.CodeWorkerError)
	call := s.one("p/fail")
	require.Equal(t, codes.Error, call.Status().Code)
	require.Contains(t, call.Status().Description, "fail on p/0 failed")
	require.Subset(t, attributes(call),
		map[string]string{"error.type": "worker_error", "rpc.response.status_code": "worker_error",
			"tempool.started": "true"})
	require.Equal(t, codes.Error, s.one(poolCall).Status().Code)
	require.Equal(t, "500", attributes(s.one(poolCall))["http.response.status_code"])

	s.Reset()
	e.do("POST", "/v1/pools/p/call/crash", nil).requireProblem(t, 502, api.CodeWorkerCrashed)
	require.Subset(t, attributes(s.one("p/crash")),
		map[string]string{"error.type": "worker_crashed", "tempool.started": "true"})
	s.one(poolCall)

	s.Reset()
	e.start(0, 2)
	response, err := e.http.Post("http://gateway/v1/pools/p/call/stream_then_crash", "", nil)
	require.NoError(t, err)
	require.ErrorIs(t, errorOf(io.ReadAll(response.Body)), io.ErrUnexpectedEOF, "it is not taken for complete")
	require.NoError(t, response.Body.Close())
	require.Equal(t, "worker_crashed", attributes(s.one("p/stream_then_crash"))["error.type"])
	require.Equal(t, "the response was cut off", s.one(poolCall).Status().Description)
}

// agentTracer is that of an agent whose environment asks for this share of the traces. Its collector drops them.
func agentTracer(t testing.TB, share string) trace.Tracer {
	t.Helper()
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(collector.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", share)
	provider := traceexport.FromEnvironment(t.Context(), "here", "test", slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		provider.Shutdown(ctx)
	})
	return provider.Tracer()
}

// TestTheWorkerSeesWhetherItsCallIsSampled sends calls over one connection: what the gateway has decided about one of
// them is not that of the next.
func TestTheWorkerSeesWhetherItsCallIsSampled(t *testing.T) {
	unsampledParent := strings.TrimSuffix(clientParent, "01") + "00"
	for name, c := range map[string]struct {
		tracer trace.Tracer
		root   string // the flags of a call that names no trace
	}{
		"an agent's tracer, no trace":    {agentTracer(t, "0"), "00"},
		"an agent's tracer, every trace": {agentTracer(t, "1"), "01"},
		"another tracer, no trace": {sdktrace.NewTracerProvider(
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))).Tracer("test"), "00"},
		"another tracer, every trace": {sdktrace.NewTracerProvider().Tracer("test"), "01"},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, 1, withConfig(func(config *Config) { config.Tracer = c.tracer }))
			seen := func(headers ...string) map[string]string {
				return decode[map[string]string](t, e.do("POST", "/v1/pools/p/call/headers", nil, headers...).body)
			}
			require.Regexp(t, "^00-[0-9a-f]{32}-[0-9a-f]{16}-"+c.root+"$", seen("X-Any", "1")["traceparent"])
			unsampled := seen("Traceparent", unsampledParent, "Tracestate", "a=1")
			require.Regexp(t, "^00-"+clientTrace+"-[0-9a-f]{16}-00$", unsampled["traceparent"])
			require.Equal(t, "a=1", unsampled["tracestate"])
			require.Regexp(t, "^00-"+clientTrace+"-[0-9a-f]{16}-01$", seen("Traceparent", clientParent)["traceparent"])
			require.Regexp(t, "^00-[0-9a-f]{32}-[0-9a-f]{16}-"+c.root+"$", seen()["traceparent"])
			answer, err := e.gateway.CallPool(t.Context(), "p",
				pool.Request{Method: "headers", Headers: map[string]string{"traceparent": "not one", "tracestate": "a=1"}})
			require.NoError(t, err)
			inProcess := decode[map[string]string](t, answer.Body)
			require.Regexp(t, "^00-[0-9a-f]{32}-[0-9a-f]{16}-"+c.root+"$", inProcess["traceparent"])
			require.NotContains(t, inProcess, "tracestate")
		})
	}
}

// TestARequestThatIsNotSampledCostsNoAllocation is about what the gateway does for the trace of a request, before and
// besides its call.
func TestARequestThatIsNotSampledCostsNoAllocation(t *testing.T) {
	g := &Gateway{config: Config{Config: pool.Config{Tracer: agentTracer(t, "0")}}}
	connection := &connection{}
	request := httptest.NewRequestWithContext(context.WithValue(t.Context(), connectionKey{}, connection), "POST",
		"/v1/pools/p/call/echo", nil)
	served := 0
	handle := g.traced(route{method: "POST", path: "/v1/pools/{pool}/call" + anyMethod, right: access.Call},
		func(http.ResponseWriter, *http.Request) { served++ })
	require.Zero(t, testing.AllocsPerRun(1000, func() { handle(nil, request) }))
	require.Greater(t, served, 1000)
	require.False(t, connection.unsampled.IsZero())
}

func TestACallWithTracingIsForwardedToPlainHTTP(t *testing.T) {
	e, s := openTraced(t, 1, plain(t))
	a := e.do("GET", "/v1/pools/p/call/traceparent", nil, "Traceparent", clientParent)
	call := s.one("p HTTP GET")
	require.Equal(t, "00-"+clientTrace+"-"+call.SpanContext().SpanID().String()+"-01", string(a.body))
	require.Equal(t, map[string]string{
		"tempool.pool": "p", "tempool.worker": "p/0", "tempool.incarnation": "1", "tempool.started": "true",
		"rpc.system.name": "http", "http.request.method": "GET",
	}, attributes(call), "paths may hold secrets")
	e.send("POST", "/v1/pools/p/call/fail", nil)
	require.Equal(t, "worker_error", attributes(s.one("p HTTP POST"))["error.type"],
		"the client has the program's answer, and the span its failure")
	require.NotContains(t, s.one("p HTTP POST").Status().Description, "fail", "the path")

	s.Reset()
	response, err := e.http.Get("http://gateway/v1/pools/p/call/large")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "cancelled", attributes(s.one("p HTTP GET"))["error.type"],
		"a client that leaves is no failure of the worker")
}

func TestLongMethodsAreRefusedAndClippedInSpans(t *testing.T) {
	e, s := openTraced(t, 1)
	long := "/v1/pools/p/call/" + strings.Repeat("m", wire.MaxMethod)
	require.NotEqual(t, 400, e.do("POST", long, nil).status, "the worker answers it")
	name := s.one("p/" + strings.Repeat("m", 198))
	require.Len(t, attributes(name)["rpc.method"], 200)
	refused := e.do("POST", long+"m", nil)
	require.Equal(t, 400, refused.status, "%s", refused.body)
	require.Contains(t, string(refused.body), "the method has 1025 bytes; at most 1024 are allowed")
	require.Len(t, s.named(name.Name()), 1, "a refused call has no span of its own")
}

func TestRequestsAboutLeasesAreSpansAndViewsAreNot(t *testing.T) {
	e, s := openTraced(t, 1)
	for _, path := range []string{"/healthz", "/v1/workers", "/v1/pools"} {
		e.ok("GET", path, nil)
	}
	granted := e.do("POST", "/v1/pools/p/leases",
		pool.CheckoutRequest{Holder: "me", WaitMS: timeout.Milliseconds()}, "Traceparent",
		clientParent)
	require.Equal(t, 201, granted.status, "%s", granted.body)
	lease := decode[api.Lease](t, granted.body)
	request := s.one("POST /v1/pools/{pool}/leases")
	require.Equal(t, clientSpan, request.Parent().SpanID().String())
	require.Subset(t, attributes(s.named("checkout")[0]),
		map[string]string{"tempool.worker": "p/0", "tempool.incarnation": "1"})
	path := "/v1/leases/" + lease.ID + "~" + lease.Token
	e.ok("PUT", path, map[string]int{"ttl_ms": 60_000})
	require.Equal(t, s.one("PUT /v1/leases/{id}").SpanContext().SpanID(), s.one("renew").Parent().SpanID())
	e.ok("DELETE", path+"?outcome=ok", nil)
	require.Equal(t, s.one("DELETE /v1/leases/{id}").SpanContext().SpanID(), s.one("checkin").Parent().SpanID())
	for _, span := range s.Ended() {
		require.NotEqual(t, "GET", attributes(span)["http.request.method"], "a view is not traced: %s", span.Name())
		for key, value := range attributes(span) {
			require.NotContains(t, value, lease.Token, "%s of %s", key, span.Name())
		}
	}
}

// TestWorkersGetValidTraceContextOnly holds with tracing on and off: a header of a client cannot reach a worker's
// OpenTelemetry unchecked.
func TestWorkersGetValidTraceContextOnly(t *testing.T) {
	e := parallel(t, 1)
	for _, c := range [][4]string{ // what a client sends, and what the worker gets
		{clientParent, "a=1", clientParent, "a=1"}, {"00-1-2-3", "a=1"}, {"", "a=1"}, {clientParent, "=", clientParent},
		{clientParent, "a=" + strings.Repeat("x", 600), clientParent},
	} {
		a := e.do("POST", "/v1/pools/p/call/headers", nil, "X-Any", "1", "Traceparent", c[0], "Tracestate", c[1])
		seen := decode[map[string]string](t, a.body)
		require.Equal(t, c[2:], []string{seen["traceparent"], seen["tracestate"]}, c)
	}
}

// A line of the log about a call or a lease names its trace, if it has one.
func TestALogLineOfATracedRequestNamesItsTrace(t *testing.T) {
	var logged bytes.Buffer
	e := parallel(t, 0, withConfig(func(c *Config) {
		c.Logger = slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}))
	for parent, want := range map[string]any{clientParent: clientTrace, strings.TrimSuffix(clientParent, "1") + "0": nil,
		"": nil} {
		logged.Reset()
		client := trace.ContextWithRemoteSpanContext(t.Context(), tracecontext.Parse(parent, ""))
		e.gateway.CheckinAbandoned(client, "no-lease")
		line := decode[map[string]any](t, logged.Bytes())
		require.Contains(t, line["msg"], "could not return the lease")
		require.Equal(t, want, line["trace_id"], parent)
	}
}
