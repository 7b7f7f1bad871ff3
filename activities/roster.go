package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// Roster implements the local activities about pools.
type Roster struct {
	// Status queries a pool; its errors are coded.
	Status func(ctx context.Context, pool string) (api.PoolStatus, error)
	// State queries one worker.
	State func(ctx context.Context, pool string, slot int) (api.WorkerState, error)
	// InFlight counts the calls in flight on the workers of a pool, by slot, as their hosts last reported.
	InFlight func(ctx context.Context, pool string) (map[int]int, error)
	// Checkout asks one worker for a lease, once.
	Checkout func(ctx context.Context, pool string, slot int, r api.CheckoutRequest) (*api.Lease, error)
	// Scale sends a pool the update scale.
	Scale func(ctx context.Context, pool string, r api.ScaleRequest) (api.ScaleResult, error)
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
	var result api.PoolRosterResult
	for _, w := range status.Workers {
		stays := !w.Gone && !w.Removing && !w.Resting && !status.Stopping
		result.Workers = append(result.Workers, api.RosterWorker{
			Slot: w.Slot, Host: w.Host, State: w.State, InService: stays && w.State.InService(),
		})
	}
	return result, nil
}

// concurrentStates bounds the queries of ReserveWorker.
const concurrentStates = 16

// reserveTTL is how long the lease on a reserved worker lasts, should its pool not use it.
const reserveTTL = 30 * time.Second

// ReserveWorker orders workers: those without a lease, those that do not answer, and those that a client has leased,
// each time the highest numbers first. With a RequestID it takes a lease on one that no client has leased, if possible
// one without a call in flight.
func (r *Roster) ReserveWorker(ctx context.Context, request api.ReserveWorkerRequest) (api.ReserveWorkerResult, error) {
	ranks := map[int]int{}
	var mu sync.Mutex
	sleep.Each(len(request.Slots), concurrentStates, func(i int) {
		state, err := r.State(ctx, request.Pool, request.Slots[i])
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			ranks[request.Slots[i]] = 1
		case state.Lease != nil:
			ranks[request.Slots[i]] = 2
		}
	})
	order := slices.SortedFunc(slices.Values(request.Slots),
		func(a, b int) int { return cmp.Or(cmp.Compare(ranks[a], ranks[b]), cmp.Compare(b, a)) })
	if request.RequestID == "" {
		return api.ReserveWorkerResult{Order: order}, nil
	}
	inFlight, err := r.InFlight(ctx, request.Pool)
	if err != nil {
		return api.ReserveWorkerResult{}, err
	}
	free := slices.DeleteFunc(order, func(slot int) bool { return ranks[slot] > 0 })
	slices.SortStableFunc(free, func(a, b int) int { return cmp.Compare(inFlight[a], inFlight[b]) })
	problem := fmt.Sprintf("clients have leased all %d workers in service", len(request.Slots))
	for _, slot := range free {
		lease, err := r.Checkout(ctx, request.Pool, slot, api.CheckoutRequest{
			RequestID: request.RequestID, AttemptID: uuid.NewString(), Holder: api.PoolHolder(request.Pool),
			TTLMS: reserveTTL.Milliseconds(),
		})
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
