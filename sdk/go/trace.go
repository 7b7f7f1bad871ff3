package sdk

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/internal/tracecontext"
	"github.com/tempool/tempool/process/wire"
)

// withSpan returns the context of a call below the span that its caller names, and in a span of its own where the
// program has set a provider for OpenTelemetry. It makes none below a caller that does not sample its trace, and does
// nothing without a caller.
func withSpan(ctx context.Context, f wire.Frame) (_ context.Context, end func(error)) {
	parent := tracecontext.Parse(f.Headers[tracecontext.Traceparent], f.Headers[tracecontext.Tracestate])
	if !parent.IsValid() {
		return ctx, func(error) {}
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	if !parent.IsSampled() {
		return ctx, func(error) {}
	}
	ctx, span := otel.GetTracerProvider().Tracer(tracecontext.Scope).Start(ctx, f.Method,
		trace.WithSpanKind(trace.SpanKindServer))
	return ctx, func(err error) {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}
