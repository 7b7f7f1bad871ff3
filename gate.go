package tempool

import (
	"context"
	"hash/maphash"
)

// gate bounds how many updates one client has under way on one workflow. Temporal takes ten at a time; those beyond are refused
// and tried again, and a crowd of such retries can stall the workflow for a minute. Waiting here is cheaper for everyone.
type updateLimiter struct {
	seed   maphash.Seed
	places [gateShards]chan struct{} // workflows that share a shard share its places
}

const (
	gateShards = 256
	gatePlaces = 8
)

func newUpdateLimiter() *updateLimiter {
	g := &updateLimiter{seed: maphash.MakeSeed()}
	for i := range g.places {
		g.places[i] = make(chan struct{}, gatePlaces)
	}
	return g
}

// enter waits for a place, which leave gives back.
func (g *updateLimiter) enter(ctx context.Context, workflowID string) (leave func(), err error) {
	places := g.places[maphash.String(g.seed, workflowID)%gateShards]
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
