package e2e

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
	"google.golang.org/protobuf/proto"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/spec"
)

// collectorVariable names the program of an OpenTelemetry Collector, which then stands between agents and
// traceReceiver; make test-traces sets it.
const collectorVariable = "TEMPOOL_COLLECTOR"

// traceReceiver takes spans by OTLP over HTTP.
type traceReceiver struct {
	t        *testing.T
	endpoint string // for agents

	mu    sync.Mutex
	spans []*tracepb.Span
}

func receiveTraces(t *testing.T) *traceReceiver {
	r := &traceReceiver{t: t}
	server := httptest.NewServer(http.HandlerFunc(r.receive))
	t.Cleanup(server.Close)
	r.endpoint = server.URL
	if program := os.Getenv(collectorVariable); program != "" {
		r.endpoint = startCollector(t, program, server.URL)
	}
	return r
}

// startCollector starts a collector that passes on what it gets, and returns its endpoint.
func startCollector(t *testing.T, program, to string) string {
	address := ownAddress(t)
	config := filepath.Join(t.TempDir(), "collector.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {http: {endpoint: "%s"}}}}
exporters: {otlp_http: {endpoint: "%s", compression: none, sending_queue: {batch: {flush_timeout: 50ms}}}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [otlp_http]}}
`, address, to), 0o600))
	collector := exec.Command(program, "--config", "file:"+config)
	collector.Stdout, collector.Stderr = t.Output(), t.Output()
	require.NoError(t, collector.Start())
	t.Cleanup(func() {
		_ = collector.Process.Signal(syscall.SIGTERM)
		_ = collector.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, waitTimeout, 50*time.Millisecond, "the collector does not listen")
	return "http://" + address
}

func (r *traceReceiver) receive(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var batch collectortrace.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &batch) != nil {
		r.t.Errorf("a batch of spans cannot be read: %v", err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range batch.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// find waits for the first span for which holds is true.
func (r *traceReceiver) find(what string, holds func(*tracepb.Span) bool) (found *tracepb.Span) {
	r.t.Helper()
	var come []string
	require.Eventually(r.t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		come = nil
		for _, span := range r.spans {
			come = append(come, fmt.Sprintf("%x %x < %x %s", span.TraceId[:4], span.SpanId, span.ParentSpanId, span.Name))
			if holds(span) {
				found = span
				return true
			}
		}
		return false
	}, waitTimeout, 20*time.Millisecond, "no span: %s; there are %q", what, &come)
	return found
}

// below waits for the span with this name below the parent.
func (r *traceReceiver) below(parent []byte, traceID []byte, name string) *tracepb.Span {
	r.t.Helper()
	return r.find(fmt.Sprintf("%s below %x", name, parent), func(s *tracepb.Span) bool {
		return s.Name == name && string(s.ParentSpanId) == string(parent) && string(s.TraceId) == string(traceID)
	})
}

func attribute(span *tracepb.Span, key string) string {
	for _, a := range span.Attributes {
		if a.Key == key {
			if a.Value.GetStringValue() != "" {
				return a.Value.GetStringValue()
			}
			return strings.TrimPrefix(strings.TrimPrefix(a.Value.String(), "int_value:"), "bool_value:")
		}
	}
	return ""
}

// TestTracesOfACallAStartAndAnExecute checks the trees of spans that reach a collector.
func TestTracesOfACallAStartAndAnExecute(t *testing.T) {
	t.Parallel()
	receiver := receiveTraces(t)
	env := newEnvWith(t)
	env.startAgentBy([]string{"env", "OTEL_EXPORTER_OTLP_ENDPOINT=" + receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY=100"},
		"traced-host")
	tracer := sdktrace.NewTracerProvider().Tracer("test") // the client's own: its spans go nowhere
	s := pythonSpec("traced", 1, "slowstart.py")
	release := filepath.Join(env.dir, "release")
	s.Pool.Env["GATE"] = release
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	pool := env.startPool(s)

	t.Run("a cold start", func(t *testing.T) {
		state := env.waitState(pool, 0, "ready")
		ctx, span := tracer.Start(t.Context(), "the client's")
		defer span.End()
		require.NoError(t, os.Remove(release)) // the successor waits for the call that waits for it
		killProcess(t, state.PID)
		answered := make(chan bool, 1)
		go func() {
			// a call that still reaches the dead process fails; the next one waits for its successor
			for t.Context().Err() == nil {
				if _, err := pool.CallRaw(ctx, "echo", nil); err == nil {
					answered <- true
					return
				}
			}
		}()
		require.Eventually(t, func() bool {
			return readScrape(t, env.gatewayClient("traced-host")).has(1, "tempool_pool_queue_length", "pool", "traced")
		}, waitTimeout, 10*time.Millisecond, "the call waits")
		require.Eventually(t, func() bool { return len(hostProcesses("traced-host")) == 1 }, waitTimeout, 10*time.Millisecond,
			"the successor starts")
		require.NoError(t, os.WriteFile(release, nil, 0o600))
		require.True(t, await(t, answered))
		started := receiver.find("the start of the next process", func(s *tracepb.Span) bool {
			return s.Name == "start of a process" && attribute(s, "tempool.worker") == "traced/0" &&
				attribute(s, "tempool.incarnation") != fmt.Sprint(state.Incarnation)
		})
		require.Greater(t, started.EndTimeUnixNano, started.StartTimeUnixNano)
		waited := receiver.find("a wait for that process", func(s *tracepb.Span) bool {
			return s.Name == "wait for a worker" && attribute(s, "tempool.worker") == "traced/0" &&
				attribute(s, "tempool.incarnation") == attribute(started, "tempool.incarnation")
		})
		traceID := span.SpanContext().TraceID()
		require.Equal(t, traceID[:], waited.TraceId)
	})

	t.Run("a worker with OpenTelemetry", func(t *testing.T) {
		sdk, err := filepath.Abs(filepath.Join("..", "..", "sdk", "node", "lib", "index.js"))
		require.NoError(t, err)
		node := patient(spec.Default())
		node.Pool.Name, node.Pool.Size, node.Pool.Command = "node", 1, []string{"node", "worker.mjs"}
		node.Pool.Dir = examplesetup.Copy(t, filepath.Join("testdata", "traced-node"))
		node.Pool.Env = map[string]string{"NODE_SDK": sdk, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
		pool := env.startPool(node)
		ctx, span := tracer.Start(t.Context(), "the client's")
		defer span.End()
		var answer string
		require.NoError(t, pool.Call(ctx, "work", nil, &answer))
		require.Equal(t, "done", answer)
		require.ErrorIs(t, pool.Call(t.Context(), "fail", nil, nil), api.ErrWorkerError)
		id, traceID := span.SpanContext().SpanID(), span.SpanContext().TraceID()
		request := receiver.below(id[:], traceID[:], "POST /v1/pools/{pool}/call/{method...}")
		call := receiver.below(request.SpanId, traceID[:], "node/work")
		worker := receiver.below(call.SpanId, traceID[:], "work")
		receiver.below(worker.SpanId, traceID[:], "inner")
		failed := receiver.find("the failed call in the worker", func(s *tracepb.Span) bool { return s.Name == "fail" })
		require.Equal(t, tracepb.Status_STATUS_CODE_ERROR, failed.Status.GetCode())
		require.Equal(t, "not today", failed.Status.Message)
	})

	t.Run("an Execute", func(t *testing.T) {
		traced, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: tracer})
		require.NoError(t, err)
		user, err := tempool.Dial(t.Context(), tempool.Options{
			Address: env.server.Address(), Namespace: env.server.Namespace(), Logger: newDiscardLogger(),
			Interceptors: []interceptor.ClientInterceptor{traced},
		})
		require.NoError(t, err)
		defer user.Close()
		ctx, span := tracer.Start(t.Context(), "the client's")
		defer span.End()
		run, err := user.Temporal().ExecuteWorkflow(ctx,
			client.StartWorkflowOptions{ID: "traced-execute", TaskQueue: api.TaskQueue}, api.WorkflowExecute,
			map[string]any{"pool": "traced", "method": "echo", "params": "hello"})
		require.NoError(t, err)
		var answer string
		require.NoError(t, run.Get(ctx, &answer))
		require.Equal(t, "hello", answer)
		traceID := span.SpanContext().TraceID()
		named := func(name string) *tracepb.Span {
			return receiver.find(name+" of trace "+hex.EncodeToString(traceID[:]),
				func(s *tracepb.Span) bool { return s.Name == name && string(s.TraceId) == string(traceID[:]) })
		}
		workflow := named("RunWorkflow:Execute")
		scheduled := receiver.below(workflow.SpanId, traceID[:], "StartActivity:"+api.ActivityExecute)
		activity := receiver.below(scheduled.SpanId, traceID[:], "RunActivity:"+api.ActivityExecute)
		receiver.below(activity.SpanId, traceID[:], "traced/echo")
	})

	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	for _, span := range receiver.spans {
		require.False(t, strings.HasPrefix(span.Name, "RunWorkflow:") && span.Name != "RunWorkflow:Execute",
			"no other workflow is traced: %s", span.Name)
	}
}
