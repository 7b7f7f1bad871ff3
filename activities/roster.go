package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"go.temporal.io/sdk/temporal"
)

// Roster holds the local activity PoolRoster.
type Roster struct {
	// Status asks a pool; its errors are coded.
	Status func(ctx context.Context, pool string) (api.PoolStatus, error)
}

// PoolRoster says who is in a pool. It fails as pool_not_found, which is not retried.
func (r *Roster) PoolRoster(ctx context.Context, request api.PoolRosterRequest) (api.PoolRosterResult, error) {
	status, err := r.Status(ctx, request.Pool)
	if err != nil {
		var coded *api.Error
		if errors.As(err, &coded) && coded.Code == api.CodePoolNotFound {
			return api.PoolRosterResult{}, temporal.NewNonRetryableApplicationError(coded.Message, string(coded.Code), nil)
		}
		return api.PoolRosterResult{}, fmt.Errorf("ask pool %s for its workers: %w", request.Pool, err)
	}
	result := api.PoolRosterResult{Size: status.Size}
	for _, w := range status.Workers {
		stays := w.Slot < status.Size && !w.Gone && !w.Leaving && !w.Resting && !status.Stopping
		result.Workers = append(result.Workers, api.RosterWorker{
			Slot: w.Slot, Host: w.Host, State: w.State, Serves: stays && (w.State == lifecycle.Ready || w.State == lifecycle.Busy),
		})
	}
	return result, nil
}
