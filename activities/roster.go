package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/tempool/tempool/api"
)

// Roster implements the local activity PoolRoster.
type Roster struct {
	// Status queries a pool; its errors are coded.
	Status func(ctx context.Context, pool string) (api.PoolStatus, error)
}

// PoolRoster returns the workers of a pool. It fails with api.CodePoolNotFound, which is not retried.
func (r *Roster) PoolRoster(ctx context.Context, request api.PoolRosterRequest) (api.PoolRosterResult, error) {
	status, err := r.Status(ctx, request.Pool)
	if errors.Is(err, api.ErrPoolNotFound) {
		return api.PoolRosterResult{}, fromCoded(err)
	}
	if err != nil {
		return api.PoolRosterResult{}, fmt.Errorf("query the workers of pool %s: %w", request.Pool, err)
	}
	result := api.PoolRosterResult{Size: status.Size}
	for _, w := range status.Workers {
		stays := w.Slot < status.Size && !w.Gone && !w.Removing && !w.Resting && !status.Stopping
		result.Workers = append(result.Workers, api.RosterWorker{
			Slot: w.Slot, Host: w.Host, State: w.State, InService: stays && w.State.InService(),
		})
	}
	return result, nil
}
