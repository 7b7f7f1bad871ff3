package worker

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
)

// poolSessionOwner is the host.Owner that asks the workflows of the pools.
type poolSessionOwner struct {
	temporal client.Client
	query    func(ctx context.Context, pool string) (api.PoolStatus, error)
	hostID   string
}

func (c poolSessionOwner) Claim(ctx context.Context, pool string) (string, error) {
	err := c.temporal.SignalWorkflow(ctx, api.PoolWorkflowID(pool), "", api.SignalSessionStoreClaimed,
		api.SessionStoreClaim{Host: c.hostID})
	switch {
	case isNotFound(err):
		return "", api.Errorf(api.CodePoolNotFound, "no pool %s is running", pool)
	case err != nil:
		return "", fmt.Errorf("claim the session store of pool %s: %w", pool, err)
	}
	status, err := c.Status(ctx, pool) // a query sees every earlier signal
	return status.SessionsHost, err
}

func (c poolSessionOwner) Status(ctx context.Context, pool string) (api.PoolStatus, error) {
	return c.query(ctx, pool)
}
