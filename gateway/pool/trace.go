package pool

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/tracecontext"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// callTrace makes the spans of one call that is sampled: its wait, and each attempt on a worker. A nil callTrace makes
// none.
type callTrace struct {
	tracer trace.Tracer
	ctx    context.Context // with the parent of the spans
	root   trace.Span      // of a call that has no parent; nil for another
	pool   string
	began  time.Time // when the attempt began
}

// trace begins the trace of a call; nil for one that is not sampled. Such a call names its trace to the worker, so that
// what the worker does is not sampled either; that it costs nothing more is why the decision comes first.
func (d *Dispatcher) trace(ctx context.Context, t *Target, r *Request) (context.Context, *callTrace) {
	if !r.Trace.IsZero() {
		return ctx, nil
	}
	parent := trace.SpanContextFromContext(ctx)
	var root trace.Span
	if !parent.IsValid() {
		var unsampled trace.SpanContext
		if ctx, unsampled = tracecontext.Sample(ctx, d.config.Tracer, parent); unsampled.IsValid() {
			r.Trace = TraceOf(unsampled)
			return ctx, nil
		}
		ctx, root = d.config.Tracer.Start(ctx, spanName(t.pool, *r, r.Unbuffered))
		parent = root.SpanContext()
	}
	if !parent.IsSampled() {
		r.Trace = TraceOf(parent)
		return ctx, nil
	}
	if root != nil {
		root.SetAttributes(tracecontext.Pool.String(tracecontext.Clip(t.pool)))
	}
	r.traced = true
	return ctx, &callTrace{tracer: d.config.Tracer, ctx: ctx, root: root, pool: t.pool}
}

// TraceOf is the trace context of a span as a worker gets it; zero for an invalid one.
func TraceOf(s trace.SpanContext) wire.Trace {
	if !s.IsValid() {
		return wire.Trace{}
	}
	known := s.TraceFlags() & (trace.FlagsSampled | trace.FlagsRandom) // W3C Trace Context reserves the others
	return wire.Trace{ID: s.TraceID(), Span: s.SpanID(), Flags: byte(known), State: s.TraceState().String()}
}

// end ends the trace of a call with its result.
func (s *callTrace) end(err error) {
	if s != nil && s.root != nil {
		tracecontext.End(s.root, err)
	}
}

// begin begins an attempt.
func (s *callTrace) begin() {
	if s != nil {
		s.began = time.Now()
	}
}

// waited makes the span of the wait before the attempt; c is nil if the attempt ended with it.
func (s *callTrace) waited(c *Call, err error) {
	if s == nil || c != nil && !c.waited {
		return
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(s.began),
		trace.WithAttributes(tracecontext.Pool.String(tracecontext.Clip(s.pool)))}
	until := time.Now()
	if c != nil {
		until = c.startedAt
		options = append(options, trace.WithAttributes(c.upstream.traceAttributes()...))
	}
	_, span := s.tracer.Start(s.ctx, "wait for a worker", options...)
	if err != nil {
		tracecontext.Fail(span, err)
		span.SetAttributes(tracecontext.Started.Bool(false))
	}
	span.End(trace.WithTimestamp(until))
}

// send runs the attempt on the worker within a span, which the worker's own spans are below.
func (s *callTrace) send(c *Call, r Request, send func(*Call, Request) error) (err error) {
	plain := c.upstream.spec.Pool.Protocol == spec.ProtocolNone
	_, span := s.tracer.Start(s.ctx, spanName(s.pool, r, plain), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(c.startedAt),
		trace.WithAttributes(c.upstream.traceAttributes()...), trace.WithAttributes(c.upstream.rpcAttributes(r)...))
	returned := false
	defer func() {
		failure := err
		switch {
		case err == nil && c.response != nil && c.response.failure != nil:
			failure = c.response.failure
		case !returned: // it panicked to break its answer off
			failure = errBrokenOff
		}
		span.SetAttributes(tracecontext.Started.Bool(failure == nil || Started(failure)))
		if plain && failure != nil {
			failure = codeAlone{failure}
		}
		tracecontext.End(span, failure)
	}()
	r.Trace = TraceOf(span.SpanContext())
	err = send(c, r)
	returned = true
	return err
}

// errBrokenOff is the failure of a call whose response was cut off.
var errBrokenOff = func() error {
	err := api.Errorf(api.CodeWorkerCrashed, "the response was cut off")
	err.Started = true
	return err
}()

// codeAlone is an error whose text is its code, since reasons name the path of plain HTTP.
type codeAlone struct{ error }

func (e codeAlone) Error() string { return string(api.CodeOf(e.error)) }
func (e codeAlone) Unwrap() error { return e.error }

// spanName names a call. The path of plain HTTP is not in it.
func spanName(pool string, r Request, plain bool) string {
	if plain {
		return tracecontext.Clip(pool + " HTTP " + r.Verb)
	}
	return tracecontext.Clip(pool + "/" + r.Method)
}

func (u *upstream) traceAttributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		tracecontext.Pool.String(u.pool.pool), tracecontext.Worker.String(u.worker),
		tracecontext.Incarnation.Int64(u.incarnation),
	}
}

// traceLease begins the span of a request to Temporal about a lease on a worker; incarnation is 0 until the lease is
// granted. Without a tracer it records nothing.
func (d *Dispatcher) traceLease(ctx context.Context, name, worker string, incarnation int64) (context.Context,
	trace.Span) {
	if d.config.Tracer == nil {
		return ctx, noop.Span{}
	}
	ctx, span := d.config.Tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		tracecontext.Pool.String(api.PoolOf(worker)), tracecontext.Worker.String(worker)))
	if incarnation > 0 {
		span.SetAttributes(tracecontext.Incarnation.Int64(incarnation))
	}
	return ctx, span
}

// rpcAttributes follow OpenTelemetry's conventions for RPC, and those for MCP where a worker may be an MCP server.
func (u *upstream) rpcAttributes(r Request) []attribute.KeyValue {
	name := attribute.String("rpc.method", tracecontext.Clip(u.pool.pool+"/"+r.Method))
	switch u.spec.Pool.Protocol {
	case spec.ProtocolFrames:
		return []attribute.KeyValue{attribute.String("rpc.system.name", "tempool"), name}
	case spec.ProtocolNone:
		return []attribute.KeyValue{attribute.String("rpc.system.name", "http"),
			attribute.String("http.request.method", r.Verb)}
	}
	attributes := []attribute.KeyValue{attribute.String("rpc.system.name", "jsonrpc"), name}
	if u.spec.Pool.Framing == spec.FramingLine {
		attributes = append(attributes, attribute.String("mcp.method.name", tracecontext.Clip(r.Method)))
	}
	return attributes
}
