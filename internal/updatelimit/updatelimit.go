// Package updatelimit bounds how many updates one client has in flight on one workflow. Temporal accepts ten at a time
// and rejects the rest, and a burst of retries can stall the workflow for a minute. Waiting in the client is cheaper
// for everyone.
package updatelimit

import (
	"context"
	"hash/maphash"
)

const (
	shards   = 256
	perShard = 8
)

// Limiter allows 8 updates in flight for each workflow; workflows that share a shard share its slots. It is safe for
// concurrent use.
type Limiter struct {
	seed  maphash.Seed
	slots [shards]chan struct{}
}

// New returns a Limiter with nothing in flight.
func New() *Limiter {
	l := &Limiter{seed: maphash.MakeSeed()}
	for i := range l.slots {
		l.slots[i] = make(chan struct{}, perShard)
	}
	return l
}

// Acquire waits for a slot of the workflow. The caller calls release once. An error is that of ctx.
func (l *Limiter) Acquire(ctx context.Context, workflowID string) (release func(), err error) {
	slots := l.slots[maphash.String(l.seed, workflowID)%shards]
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
