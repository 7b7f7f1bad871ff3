package traceexport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const timeout = 2 * time.Minute

// collector is an OTLP receiver over HTTP.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	batches []*tracepb.ResourceSpans
}

func startCollector(t *testing.T, release <-chan struct{}) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collectortrace.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		<-release
		c.mu.Lock()
		c.batches = append(c.batches, request.ResourceSpans...)
		c.mu.Unlock()
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) spans() (names []string, resources map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	resources = map[string]string{}
	for _, batch := range c.batches {
		for _, attribute := range batch.Resource.Attributes {
			resources[attribute.Key] = attribute.Value.GetStringValue()
		}
		for _, scope := range batch.ScopeSpans {
			for _, span := range scope.Spans {
				names = append(names, span.Name)
			}
		}
	}
	return names, resources
}

func open() <-chan struct{} {
	release := make(chan struct{})
	close(release)
	return release
}

func logged() (*slog.Logger, *bytes.Buffer) {
	var text bytes.Buffer
	return slog.New(slog.NewTextHandler(&text, nil)), &text
}

func requireCounts(t *testing.T, p *Provider, exported, dropped int64) {
	t.Helper()
	gotExported, gotDropped := p.Counts()
	require.Equal(t, []int64{exported, dropped}, []int64{gotExported, gotDropped}, "exported and dropped")
}

func TestTheEnvironmentDecides(t *testing.T) {
	for name, c := range map[string]struct {
		environment map[string]string
		on          bool
		says        string
	}{
		"nothing": {},
		"an endpoint": {environment: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
			on: true},
		"an endpoint of traces": {
			environment: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, on: true},
		"the exporter": {environment: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, on: true},
		"gRPC": {environment: map[string]string{"OTEL_TRACES_EXPORTER": "otlp",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, on: true},
		"an endpoint of metrics": {
			environment: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1"}},
		"no exporter": {environment: map[string]string{"OTEL_TRACES_EXPORTER": "none",
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}},
		"disabled": {environment: map[string]string{"OTEL_SDK_DISABLED": "TRUE",
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}},
		"an unknown exporter": {environment: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"},
			says: "use otlp or none"},
		"an unknown protocol": {environment: map[string]string{"OTEL_TRACES_EXPORTER": "otlp",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, says: "use http/protobuf or grpc"},
		"an invalid queue length": {environment: map[string]string{"OTEL_TRACES_EXPORTER": "otlp",
			"OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, on: true, says: "1 to 1048576"},
		"an invalid batch": {environment: map[string]string{"OTEL_TRACES_EXPORTER": "otlp",
			"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "-1"}, on: true, says: "1 to 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range c.environment {
				t.Setenv(key, value)
			}
			logger, text := logged()
			p := FromEnvironment(t.Context(), "h1", "i1", logger)
			require.Equal(t, c.on, p != nil)
			require.Equal(t, c.on, p.Tracer() != nil)
			if c.says == "" {
				require.Empty(t, text.String())
			}
			require.Contains(t, text.String(), c.says)
			p.Shutdown(t.Context())
		})
	}
}

func TestSpansReachTheCollectorWithTheirResource(t *testing.T) {
	for given, service := range map[string]string{"": "tempool", "mine": "mine"} {
		c := startCollector(t, open())
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
		t.Setenv("OTEL_SERVICE_NAME", given)
		logger, _ := logged()
		p := FromEnvironment(t.Context(), "h1", "i1", logger)
		_, span := p.Tracer().Start(t.Context(), "one")
		span.End()
		p.Shutdown(t.Context())
		names, resources := c.spans()
		require.Equal(t, []string{"one"}, names)
		require.Equal(t, service, resources["service.name"])
		require.Equal(t, "h1", resources["host.name"])
		require.Equal(t, "test", resources["deployment.environment"])
		requireCounts(t, p, 1, 0)
	}
}

// TestASlowCollectorSlowsNobody ends far more spans than may wait while the collector answers nothing.
func TestASlowCollectorSlowsNobody(t *testing.T) {
	release := make(chan struct{})
	c := startCollector(t, release)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
	// no export ends before the collector answers, which it does once all have ended
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", fmt.Sprint(time.Hour.Milliseconds()))
	logger, _ := logged()
	p := FromEnvironment(t.Context(), "h1", "i1", logger)
	const all = 10_000
	for range all {
		_, span := p.Tracer().Start(t.Context(), "one")
		span.End()
	}
	requireCounts(t, p, 0, all-100) // what the queue holds waits, the rest is dropped
	close(release)
	p.Shutdown(t.Context())
	names, _ := c.spans()
	require.Len(t, names, 100)
	requireCounts(t, p, 100, all-100)
}

func TestAMissingCollectorIsLoggedOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close()) // nobody listens there now
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
	logger, text := logged()
	p := FromEnvironment(t.Context(), "h1", "i1", logger)
	for range 3 {
		_, span := p.Tracer().Start(t.Context(), "one")
		span.End()
		require.NoError(t, p.ForceFlush(t.Context()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	p.Shutdown(ctx)
	requireCounts(t, p, 0, 3)
	require.Equal(t, 1, bytes.Count(text.Bytes(), []byte("the collector accepts no spans")), "%s", text)
}
