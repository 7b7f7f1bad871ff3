package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tempool/tempool/gateway/dispatch"
)

// BenchmarkTracing measures what tracing costs a call: off, with 1 % of the calls sampled, and with all. The ways alternate call by call, so that
// all see the same load of the machine.
func BenchmarkTracing(b *testing.B) {
	type way struct {
		name string
		call func() error
		took []time.Duration
	}
	var ways []*way
	body := bytes.Repeat([]byte("x"), 100)
	for _, share := range []float64{0, 0.01, 1} {
		options := []option{idleReturn(time.Hour)}
		if share > 0 {
			provider := sdktrace.NewTracerProvider(
				sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share))), sdktrace.WithBatcher(tracetest.NewNoopExporter()))
			b.Cleanup(func() { require.NoError(b, provider.Shutdown(context.Background())) })
			options = append(options, withConfig(func(c *Config) { c.Tracer = provider.Tracer("bench") }))
		}
		e := open(b, 1, options...)
		ways = append(ways, &way{name: fmt.Sprintf("in-process-%g", share), call: func() error {
			_, err := e.gateway.CallPool(context.Background(), "p", dispatch.Request{Method: "echo", Body: body})
			return err
		}}, &way{name: fmt.Sprintf("socket-%g", share), call: func() error {
			response, err := e.http.Post("http://gateway/v1/pools/p/call/echo", "application/json", bytes.NewReader(body))
			if err != nil {
				return err
			}
			defer response.Body.Close()
			_, err = io.Copy(io.Discard, response.Body)
			return err
		}})
	}
	for _, w := range ways {
		require.NoError(b, w.call())
	}
	for turn := 0; b.Loop(); turn++ {
		for i := range ways {
			w := ways[(i+turn)%len(ways)]
			began := time.Now()
			if err := w.call(); err != nil {
				b.Fatal(err)
			}
			w.took = append(w.took, time.Since(began))
		}
	}
	for _, w := range ways {
		slices.Sort(w.took)
		b.ReportMetric(float64(w.took[len(w.took)/2].Nanoseconds())/1000, w.name+"-p50-µs")
	}
}
