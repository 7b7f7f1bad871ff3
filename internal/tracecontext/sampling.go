package tracecontext

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// Sampler is a Tracer that decides about a trace before it makes a span, so that those that are not sampled cost no span.
type Sampler interface {
	trace.Tracer
	// Sample decides about a span below parent, or about the first one of a trace if parent is invalid. If that is not sampled, unsampled is valid: it
	// names the trace for programs that are called next. Otherwise Start makes the span, with the context that Sample returns.
	Sample(ctx context.Context, parent trace.SpanContext) (_ context.Context, unsampled trace.SpanContext)
}

// Sample is that of the tracer, if it is a Sampler. Another tracer decides when it makes the span.
func Sample(ctx context.Context, t trace.Tracer, parent trace.SpanContext) (_ context.Context, unsampled trace.SpanContext) {
	if s, ok := t.(Sampler); ok {
		return s.Sample(ctx, parent)
	}
	return ctx, unsampled
}
