package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

func recordedTraces(t *testing.T) (*traces, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	return newTraces(t.Context(), provider.Tracer("test"), "h", "i", slog.New(slog.DiscardHandler)), recorder
}

func TestAHostCallIsASpanBelowItsCall(t *testing.T) {
	traces, recorder := recordedTraces(t)
	serve := traces.hostCalls(func(context.Context, process.HostCall) ([]byte, error) { return []byte("answer"), nil })
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
	// the others are not sampled
	for _, headers := range []map[string]string{{"traceparent": parent + "1"}, {"traceparent": parent + "0"}, nil} {
		answer, err := serve(t.Context(),
			process.HostCall{Worker: "p/0", Incarnation: 3, Method: "session.get", Headers: headers})
		require.NoError(t, err)
		require.Equal(t, "answer", string(answer))
	}
	spans := recorder.Ended()
	require.Len(t, spans, 1)
	require.Equal(t, "b7ad6b7169203331", spans[0].Parent().SpanID().String())
}

func TestTheSpanOfAFailedStartSaysWhy(t *testing.T) {
	traces, recorder := recordedTraces(t)
	ended := traces.start(t.Context(), api.Process{Worker: "p/0", Incarnation: 4})
	ended(&process.Error{Code: process.CodeStartFailed, Message: "exited", Err: errors.New("code 1")})
	failed := recorder.Ended()[0]
	require.Equal(t, codes.Error, failed.Status().Code)
	require.Contains(t, failed.Status().Description, "exited")
}
