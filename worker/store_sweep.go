package worker

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/tempool/tempool/sessions"
)

// sweep removes what has expired, again and again until ctx ends.
func (s *stores) sweep(ctx context.Context) {
	ticker := time.NewTicker(sessions.SweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s.sweepOnce(ctx)
	}
}

// sweepOnce frees what is left of expired sessions, and says of how many.
func (s *stores) sweepOnce(ctx context.Context) (found int) {
	for _, store := range s.all() {
		n, err := store.DeleteExpired(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("expired sessions were not swept; they are gone all the same", "error", err)
		}
		found += n
	}
	return found
}

// drop gives back what this agent keeps of sessions and can do without: the remains of expired ones, and bindings that have run
// out. What a worker's program keeps of sessions is its own, and it is told of the shortage, too.
func (s *stores) freeMemory(ctx context.Context) {
	found, before := s.sweepOnce(ctx), heapBytes()
	bindings := s.affinity.Len() // it sweeps first
	debug.FreeOSMemory()
	s.log.Info("session caches were dropped", "expired_sessions", found, "bindings_kept", bindings, "heap_before", before, "heap_after", heapBytes())
}

// heapBytes is what the agent's own heap has from the system, in bytes.
func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapSys - m.HeapReleased
}
