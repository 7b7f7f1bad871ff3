package gateway

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/tracecontext"
)

// traced returns a handler that makes a span of each request to the route, below the span that the client names. It is
// handle itself where tracing is off, and for routes that programs ask all the time.
func (g *Gateway) traced(rt route, handle http.HandlerFunc) http.HandlerFunc {
	tracer := g.config.Tracer
	if tracer == nil || rt.right&(access.Call|access.Lease|access.Sessions) == 0 { // views of what is are not traced
		return handle
	}
	name := rt.method + " " + rt.path
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.route", rt.path), tracecontext.Host.String(g.config.HostID)),
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, span, unsampled := startSpan(r, tracer, name, options)
		if rt.isCall() {
			connectionOf(r).unsampled = pool.TraceOf(unsampled)
		}
		if span == nil {
			if !rt.isCall() { // the requests to Temporal that it makes are not sampled either
				r = r.WithContext(trace.ContextWithSpanContext(ctx, unsampled))
			}
			handle(w, r)
			return
		}
		span.SetAttributes(attribute.String("http.request.method", knownMethod(r.Method)))
		if pool := r.PathValue("pool"); pool != "" {
			span.SetAttributes(tracecontext.Pool.String(tracecontext.Clip(pool)))
		}
		answer := &statusWriter{ResponseWriter: w}
		completed := false
		defer func() {
			answer.describe(span, completed)
			span.End()
		}()
		handle(answer, r.WithContext(ctx))
		completed = true
	}
}

// startSpan starts the span of a request. It is nil for a request that is not sampled, whose trace is unsampled.
func startSpan(r *http.Request, t trace.Tracer, name string,
	options []trace.SpanStartOption) (ctx context.Context, span trace.Span, unsampled trace.SpanContext) {
	client := tracecontext.FromHTTP(r.Header)
	if ctx, unsampled = tracecontext.Sample(r.Context(), t, client); unsampled.IsValid() {
		return ctx, nil, unsampled
	}
	if client.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, client)
	}
	if ctx, span = t.Start(ctx, name, options...); !span.IsRecording() {
		return ctx, nil, span.SpanContext()
	}
	return ctx, span, unsampled
}

// isCall reports whether requests to the route are calls and notifications.
func (rt route) isCall() bool { return strings.HasSuffix(rt.path, anyMethod) }

// knownMethod bounds the methods of spans; workers of protocol none take every method.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return method
	}
	return "_OTHER"
}

// statusWriter remembers the status and the worker of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// describe gives the span the answer's status; completed is false if the handler broke the answer off.
func (w *statusWriter) describe(span trace.Span, completed bool) {
	if w.status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", w.status))
	}
	switch {
	case !completed:
		span.SetStatus(codes.Error, "the response was cut off")
	case w.status >= http.StatusInternalServerError:
		span.SetStatus(codes.Error, http.StatusText(w.status))
	}
}
