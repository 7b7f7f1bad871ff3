package lease

import (
	"context"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
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
