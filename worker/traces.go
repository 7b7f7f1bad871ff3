package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/tracecontext"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/worker/traceexport"
	"github.com/tempool/tempool/workflows"
)

// shutdownTraces bounds the export of the last spans.
const shutdownTraces = 3 * time.Second

// traces makes the agent's spans. With a nil tracer it makes none, and returns what it wraps unchanged.
type traces struct {
	tracer   trace.Tracer
	provider *traceexport.Provider // nil if the agent's owner exports the spans, or nobody does
}

// newTraces makes the spans with tracer; nil asks the environment.
func newTraces(ctx context.Context, tracer trace.Tracer, hostID, instance string, logger *slog.Logger) *traces {
	t := &traces{tracer: tracer}
	if tracer == nil {
		t.provider = traceexport.FromEnvironment(ctx, hostID, instance, logger)
		t.tracer = t.provider.Tracer()
	}
	return t
}

// start makes the span of the start of a process, from its spawn until it is ready.
func (t *traces) start(ctx context.Context, p api.Process) (ended func(error)) {
	if t.tracer == nil {
		return func(error) {}
	}
	pool := api.PoolOf(p.Worker)
	_, span := t.tracer.Start(ctx, "start of a process", trace.WithAttributes(
		tracecontext.Pool.String(pool), tracecontext.Worker.String(p.Worker), tracecontext.Incarnation.Int64(p.Incarnation)))
	return func(err error) {
		if failed, ok := errors.AsType[*process.Error](err); ok {
			err = api.Errorf(api.Code(failed.Code), "%w", err)
		}
		tracecontext.End(span, err)
	}
}

// hostCalls makes a span of each host call, below the span of the call that the worker serves.
func (t *traces) hostCalls(serve func(context.Context, process.HostCall) ([]byte, error)) func(context.Context,
	process.HostCall) ([]byte, error) {
	if t.tracer == nil {
		return serve
	}
	return func(ctx context.Context, call process.HostCall) ([]byte, error) {
		parent := tracecontext.Parse(call.Headers[tracecontext.Traceparent], call.Headers[tracecontext.Tracestate])
		if !parent.IsSampled() {
			return serve(ctx, call)
		}
		_, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), "host call",
			trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
				tracecontext.Pool.String(api.PoolOf(call.Worker)), tracecontext.Worker.String(call.Worker),
				tracecontext.Incarnation.Int64(call.Incarnation),
				attribute.String("rpc.system.name", "tempool"), attribute.String("rpc.method", tracecontext.Clip(call.Method))))
		result, err := serve(ctx, call)
		tracecontext.End(span, err)
		return result, err
	}
}

// ofExecute returns the interceptor that traces the workflow Execute, and no other, and its activity; nil if there is
// none.
func (t *traces) ofExecute() []interceptor.WorkerInterceptor {
	if t.tracer == nil {
		return nil
	}
	traced, _ := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: t.tracer, // cannot fail
		AllowInvalidParentSpans: true, DisableBaggage: true})
	return []interceptor.WorkerInterceptor{workflows.OnExecute(traced)}
}

// counts are those of metrics.Config.Spans; nil if this agent exports none.
func (t *traces) counts() func() (exported, dropped int64) {
	if t.provider == nil {
		return nil
	}
	return t.provider.Counts
}

// shutdown sends the last spans, if this agent exports them.
func (t *traces) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTraces)
	defer cancel()
	t.provider.Shutdown(ctx)
}
