package traceexport

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/internal/tracecontext"
)

// exportTimeout bounds the export of one batch, retries included.
const exportTimeout = 30 * time.Second

// Provider makes the spans of an agent and sends those that are sampled, in batches. Methods of a nil Provider are of
// one that makes none.
type Provider struct {
	*sdktrace.TracerProvider
	queue    *queue
	sampling sampling
}

// queue bounds the spans that wait for the collector, and counts them. The SDK's own processor drops spans without a
// count, so its queue must never be full.
type queue struct {
	sdktrace.SpanProcessor // the SDK's
	exporter               sdktrace.SpanExporter
	size                   int64
	waiting                atomic.Int64
	exported, dropped      atomic.Int64
	failing                atomic.Bool
	logger                 *slog.Logger
}

func newProvider(exporter sdktrace.SpanExporter, size, batch int, s sampling, described *resource.Resource,
	logger *slog.Logger) *Provider {
	q := &queue{exporter: exporter, size: int64(size), logger: logger}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor((*countedExporter)(q),
		sdktrace.WithMaxQueueSize(size), sdktrace.WithMaxExportBatchSize(batch), sdktrace.WithExportTimeout(exportTimeout))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(q), sdktrace.WithResource(described), sdktrace.WithSampler(s.sampler()),
		sdktrace.WithIDGenerator(ids{}))
	return &Provider{provider, q, s}
}

// Tracer makes the agent's spans, and is a tracecontext.Sampler; nil makes none.
func (p *Provider) Tracer() trace.Tracer {
	if p == nil {
		return nil
	}
	return &tracer{p.TracerProvider.Tracer(tracecontext.Scope), p.sampling}
}

// Counts returns how many sampled spans the collector took, and how many it never got because it was too slow or did
// not answer.
func (p *Provider) Counts() (exported, dropped int64) {
	return p.queue.exported.Load(), p.queue.dropped.Load()
}

// Shutdown sends what waits until ctx ends. No span that ends later is sent.
func (p *Provider) Shutdown(ctx context.Context) {
	if p == nil {
		return
	}
	if err := p.TracerProvider.Shutdown(ctx); err != nil {
		p.queue.logger.Warn("the last spans were not sent to the collector", "spans", p.queue.waiting.Load(), "error", err)
	}
}

// OnEnd queues a span, or drops it if too many wait. It never blocks.
func (q *queue) OnEnd(span sdktrace.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > q.size {
		q.waiting.Add(-1)
		q.dropped.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(span)
}

// countedExporter is the exporter of a queue.
type countedExporter queue

func (e *countedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.exporter.ExportSpans(ctx, spans)
	n := int64(len(spans))
	e.waiting.Add(-n)
	if err == nil {
		e.exported.Add(n)
		if e.failing.CompareAndSwap(true, false) {
			e.logger.Info("the collector accepts spans again", "dropped", e.dropped.Load())
		}
		return nil
	}
	e.dropped.Add(n)
	if e.failing.CompareAndSwap(false, true) { // not each batch: a collector may be away for long
		e.logger.Warn("the collector accepts no spans; dropping them until it does", "error", err)
	}
	return nil
}

func (e *countedExporter) Shutdown(ctx context.Context) error { return e.exporter.Shutdown(ctx) }
