package activities

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tempool/tempool/api"
)

// reserveTTL is how long the lease on a reserved worker lasts, should its pool not use it.
const reserveTTL = 30 * time.Second

// ReserveWorker takes a lease on one worker that no client has leased, if possible one without a call in flight.
func (r *Roster) ReserveWorker(ctx context.Context, request api.ReserveWorkerRequest) (api.ReserveWorkerResult, error) {
	leases, err := r.WorkerLeases(ctx, api.WorkerLeasesRequest{Pool: request.Pool, Slots: request.Slots})
	if err != nil {
		return api.ReserveWorkerResult{}, err
	}
	slots := slices.DeleteFunc(slices.Clone(request.Slots),
		func(slot int) bool { return leases.Of(slot) != api.HolderNone })
	inFlight, err := r.InFlight(ctx, request.Pool)
	if err != nil {
		return api.ReserveWorkerResult{}, err
	}
	slices.SortFunc(slots, func(a, b int) int { return cmp.Or(cmp.Compare(inFlight[a], inFlight[b]), cmp.Compare(b, a)) })
	checkout := func(slot int) (*api.Lease, error) {
		return r.Checkout(ctx, request.Pool, slot, api.CheckoutRequest{
			RequestID: request.RequestID, AttemptID: uuid.NewString(), Holder: api.PoolHolder(request.Pool),
			TTLMS: reserveTTL.Milliseconds(),
		})
	}
	problem := fmt.Sprintf("clients have leased all %d workers in service", len(request.Slots))
	for _, slot := range slots {
		lease, err := checkout(slot)
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
