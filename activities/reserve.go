package activities

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// reserveTTL is how long the lease on a reserved worker lasts, should its pool not use it.
	reserveTTL = 30 * time.Second
	// returnPause is after how long a gateway has returned a lease between two calls; it does not take the worker again
	// for a moment.
	returnPause = 1200 * time.Millisecond
	// maxReturns bounds how many gateways are asked for a lease.
	maxReturns = 2
)

// ReserveWorker takes a lease on one worker that nobody uses. It asks those without a lease first, then those that a
// gateway has leased, which return the lease between two calls. A client's lease stays.
func (r *Roster) ReserveWorker(ctx context.Context, request api.ReserveWorkerRequest) (api.ReserveWorkerResult, error) {
	leases, err := r.WorkerLeases(ctx, api.WorkerLeasesRequest{Pool: request.Pool, Slots: request.Slots})
	if err != nil {
		return api.ReserveWorkerResult{}, err
	}
	slots := slices.DeleteFunc(slices.Clone(request.Slots),
		func(slot int) bool { return leases.Of(slot) > api.HolderGateway })
	slices.SortStableFunc(slots, func(a,
		b int) int {
		return cmp.Or(cmp.Compare(leases.Of(a), leases.Of(b)), cmp.Compare(b, a))
	})
	checkout := func(slot int) (*api.Lease, error) {
		return r.Checkout(ctx, request.Pool, slot, api.CheckoutRequest{
			RequestID: request.RequestID, AttemptID: uuid.NewString(), Holder: api.PoolHolder(request.Pool),
			TTLMS: reserveTTL.Milliseconds(),
		})
	}
	problem, recalled := fmt.Sprintf("clients have leased all %d workers in service", len(request.Slots)), 0
	for _, slot := range slots {
		lease, err := checkout(slot)
		if err != nil && leases.Of(slot) == api.HolderGateway {
			if recalled++; recalled > maxReturns {
				break
			}
			if !sleep.For(ctx.Done(), returnPause) {
				break
			}
			lease, err = checkout(slot)
		}
		if err == nil {
			return api.ReserveWorkerResult{Slot: slot, LeaseID: lease.ID}, nil
		}
		problem = "no worker is free: " + err.Error()
	}
	return api.ReserveWorkerResult{Problem: problem}, nil
}

// ScalePool sends a pool the update scale. A refusal is not retried.
func (r *Roster) ScalePool(ctx context.Context, request api.ScheduledScale) (api.ScaleResult, error) {
	result, err := r.Scale(ctx, request.Pool, request.ScaleRequest)
	if code := api.CodeOf(err); code != "" && !code.Retryable() {
		return result, fromCoded(err)
	}
	return result, err
}
