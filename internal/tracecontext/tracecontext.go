// Package tracecontext reads and writes the W3C trace context of a request, and gives spans the attributes and the
// status that all of Tempool's spans have. It depends on the API of OpenTelemetry only, and exports nothing.
package tracecontext

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/api"
)

// Scope is the name of the instrumentation of every span of Tempool.
const Scope = "github.com/tempool/tempool"

// Names of the headers, in lower case as workers see them.
const (
	Traceparent = "traceparent"
	Tracestate  = "tracestate"
)

const (
	// MaxState bounds a tracestate, in bytes; W3C Trace Context asks for 512 at least. A longer one is dropped.
	MaxState = 512
	// maxParent bounds a traceparent, in bytes: versions after 00 may add to its 55.
	maxParent = 128
	// maxText bounds the name and a text attribute of a span, in bytes.
	maxText = 200
	// maxReason bounds the reason of a failed span, in bytes.
	maxReason = 512
)

// Attributes of spans.
const (
	Pool        = attribute.Key("tempool.pool")
	Worker      = attribute.Key("tempool.worker")
	Incarnation = attribute.Key("tempool.incarnation")
	Started     = attribute.Key("tempool.started") // whether the worker may have seen the request
	Host        = attribute.Key("tempool.host")
)

var format propagation.TraceContext

// Parse returns the remote span that the headers of a request name. It is invalid if traceparent is; a tracestate that
// is invalid or too long is dropped.
func Parse(traceparent, tracestate string) trace.SpanContext {
	if traceparent == "" || len(traceparent) > maxParent {
		return trace.SpanContext{}
	}
	if len(tracestate) > MaxState {
		tracestate = ""
	}
	return trace.SpanContextFromContext(format.Extract(context.Background(), carrier{traceparent, tracestate}))
}

// carrier holds the two headers that Parse reads; a map of them would cost more than reading them.
type carrier struct{ parent, state string }

func (c carrier) Get(key string) string {
	switch key {
	case Traceparent:
		return c.parent
	case Tracestate:
		return c.state
	}
	return ""
}

func (carrier) Set(string, string) {}
func (carrier) Keys() []string     { return []string{Traceparent, Tracestate} }

// FromHTTP returns the span that the headers name; a duplicate traceparent names none.
func FromHTTP(h http.Header) trace.SpanContext {
	if parents := h["Traceparent"]; len(parents) == 1 {
		return Parse(parents[0], strings.Join(h["Tracestate"], ","))
	}
	return trace.SpanContext{}
}

// ToHTTP adds the span of ctx to the headers of a request, unless they name one.
func ToHTTP(ctx context.Context, h http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() && h.Get(Traceparent) == "" {
		h.Del(Tracestate)
		format.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// ID is the id of the trace of ctx in hex; "" if it is not sampled.
func ID(ctx context.Context) string {
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		return span.TraceID().String()
	}
	return ""
}

// Logger returns the logger for lines about what ctx is for: they have trace_id if that is traced and sampled.
func Logger(ctx context.Context, l *slog.Logger) *slog.Logger {
	if id := ID(ctx); id != "" {
		return l.With("trace_id", id)
	}
	return l
}

// Clip bounds a name or a text attribute of a span that somebody else chooses.
func Clip(text string) string { return clip(text, maxText) }

func clip(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// End ends a span with the result of what it measured: the status is the code of the error.
func End(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		Fail(span, err)
	}
	span.End()
}

// Fail gives a span the status of a failure. A caller that left is not a failure.
func Fail(span trace.Span, err error) {
	code := api.CodeOf(err)
	if code == "" {
		code = "_OTHER" // OpenTelemetry's name for an error without one
		if errors.Is(err, context.Canceled) {
			code = api.CodeCancelled
		}
	}
	span.SetAttributes(attribute.String("error.type", string(code)),
		attribute.String("rpc.response.status_code", string(code)))
	if code == api.CodeCancelled {
		return
	}
	span.SetStatus(codes.Error, clip(err.Error(), maxReason))
}

// Sampler is a Tracer that decides about a trace before it makes a span, so that those that are not sampled cost no
// span.
type Sampler interface {
	trace.Tracer
	// Sample decides about a span below parent, or about the first one of a trace if parent is invalid. If that is not
	// sampled, unsampled is valid: it names the trace for programs that are called next. Otherwise Start makes the span,
	// with the context that Sample returns.
	Sample(ctx context.Context, parent trace.SpanContext) (_ context.Context, unsampled trace.SpanContext)
}

// Sample is that of the tracer, if it is a Sampler. Another tracer decides when it makes the span.
func Sample(ctx context.Context, t trace.Tracer,
	parent trace.SpanContext) (_ context.Context, unsampled trace.SpanContext) {
	if s, ok := t.(Sampler); ok {
		return s.Sample(ctx, parent)
	}
	return ctx, unsampled
}
