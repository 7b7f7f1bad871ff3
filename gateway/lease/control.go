package lease

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/tracecontext"
)

// Control is the part of Temporal that the gateway uses. Errors are coded like those of tempool.Client, which ControlOf
// adapts.
type Control interface {
	// Checkout tries to check out one worker, once.
	Checkout(ctx context.Context, worker string, o tempool.CheckoutOptions) (*api.Lease, error)
	Renew(ctx context.Context, leaseID string, ttl time.Duration) (*api.Lease, error)
	// Checkin returns a lease without waiting for the worker to act on it; CheckinNow waits.
	Checkin(ctx context.Context, r api.CheckinRequest) error
	CheckinNow(ctx context.Context, r api.CheckinRequest) (api.CheckinResult, error)
	State(ctx context.Context, worker string) (api.WorkerState, error)
	Workers(ctx context.Context, pool string) (api.PoolWorkers, error)
	Status(ctx context.Context, pool string) (api.PoolStatus, error)
	ListPools(ctx context.Context) ([]string, error)
	// Check fails if Temporal does not answer.
	Check(ctx context.Context) error
}

// ControlOf adapts a client of Temporal.
func ControlOf(c *tempool.Client) Control { return control{c} }

// control takes Checkin, CheckinNow and ListPools from the client.
type control struct{ *tempool.Client }

func (c control) Checkout(ctx context.Context, worker string, o tempool.CheckoutOptions) (*api.Lease, error) {
	pool, slot, err := api.ParseWorkerName(worker)
	if err != nil {
		return nil, err
	}
	lease, err := c.Pool(pool).CheckoutOnce(ctx, slot, o)
	if err != nil {
		return nil, err
	}
	return &lease.Lease, nil
}

func (c control) Renew(ctx context.Context, leaseID string, ttl time.Duration) (*api.Lease, error) {
	lease, err := c.Client.Renew(ctx, leaseID, ttl)
	if err != nil {
		return nil, err
	}
	return &lease.Lease, nil
}

func (c control) State(ctx context.Context, worker string) (api.WorkerState, error) {
	pool, slot, err := api.ParseWorkerName(worker)
	if err != nil {
		return api.WorkerState{}, err
	}
	return c.Pool(pool).State(ctx, slot)
}

func (c control) Workers(ctx context.Context, pool string) (api.PoolWorkers, error) {
	return c.Pool(pool).Workers(ctx)
}

func (c control) Status(ctx context.Context, pool string) (api.PoolStatus, error) {
	return c.Pool(pool).Running(ctx)
}

func (c control) Check(ctx context.Context) error {
	if _, err := c.Temporal().CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		return api.Errorf(api.CodeUnavailable, "Temporal does not answer: %w", err)
	}
	return nil
}

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
