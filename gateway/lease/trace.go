package lease

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/tracecontext"
)

// tracedControl makes a span of each request to Temporal about a lease.
type tracedControl struct {
	Control
	tracer trace.Tracer
}

// Traced is control with a span for each request about a lease; control itself without a tracer.
func Traced(control Control, tracer trace.Tracer) Control {
	if tracer == nil {
		return control
	}
	return tracedControl{control, tracer}
}

// start begins a span about a worker or a lease, one of which is "".
func (c tracedControl) start(ctx context.Context, name, worker, leaseID string) (context.Context, trace.Span) {
	ctx, span := c.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	if ref, err := api.ParseLeaseID(leaseID); err == nil {
		worker = ref.Worker()
		span.SetAttributes(tracecontext.Incarnation.Int64(ref.Incarnation))
	}
	if pool, _, err := api.ParseWorkerName(worker); err == nil {
		span.SetAttributes(tracecontext.Pool.String(pool), tracecontext.Worker.String(worker))
	}
	return ctx, span
}

func (c tracedControl) Checkout(ctx context.Context, worker string, o tempool.CheckoutOptions) (*api.Lease, error) {
	ctx, span := c.start(ctx, "checkout", worker, "")
	lease, err := c.Control.Checkout(ctx, worker, o)
	if err == nil {
		span.SetAttributes(tracecontext.Incarnation.Int64(lease.Incarnation))
	}
	tracecontext.End(span, err)
	return lease, err
}

func (c tracedControl) Renew(ctx context.Context, leaseID string, ttl time.Duration) (*api.Lease, error) {
	ctx, span := c.start(ctx, "renew", "", leaseID)
	lease, err := c.Control.Renew(ctx, leaseID, ttl)
	tracecontext.End(span, err)
	return lease, err
}

func (c tracedControl) Checkin(ctx context.Context, r api.CheckinRequest) error {
	ctx, span := c.start(ctx, "checkin", "", r.LeaseID)
	err := c.Control.Checkin(ctx, r)
	tracecontext.End(span, err)
	return err
}

func (c tracedControl) CheckinNow(ctx context.Context, r api.CheckinRequest) (api.CheckinResult, error) {
	ctx, span := c.start(ctx, "checkin", "", r.LeaseID)
	result, err := c.Control.CheckinNow(ctx, r)
	tracecontext.End(span, err)
	return result, err
}
