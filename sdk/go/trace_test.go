package sdk

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/process/wire"
)

func TestAHandlerRunsInTheTraceOfItsCaller(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	Method("span", func(ctx context.Context, fail bool) (string, error) {
		if fail {
			return "", Errorf("cannot", "not today")
		}
		return trace.SpanContextFromContext(ctx).SpanID().String(), nil
	})
	host := serve(t, wire.Options{})
	traced := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	span := answered(t, host, wire.Request{Method: "span", Headers: traced})
	failed(t, host, wire.Request{Method: "span", Headers: traced, Payload: []byte("true")})
	spans := recorder.Ended()
	require.Len(t, spans, 2)
	require.Equal(t, "span", spans[0].Name())
	require.Equal(t, "b7ad6b7169203331", spans[0].Parent().SpanID().String())
	require.Equal(t, `"`+spans[0].SpanContext().SpanID().String()+`"`, span, "the handler runs in it")
	require.Equal(t, codes.Error, spans[1].Status().Code)

	unsampled := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
	require.Equal(t, `"b7ad6b7169203331"`, answered(t, host, wire.Request{Method: "span", Headers: unsampled}),
		"the handler runs below its caller")
	for _, headers := range []map[string]string{nil, {"traceparent": "00-1-2-3"}} {
		require.Equal(t, `"0000000000000000"`, answered(t, host, wire.Request{Method: "span", Headers: headers}))
	}
	require.Len(t, recorder.Ended(), 2)
}
