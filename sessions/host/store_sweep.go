package host

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/sessions"
)

// Sweep removes expired sessions every sessions.SweepEvery until ctx ends.
func (s *Stores) Sweep(ctx context.Context) {
	for range sleep.Ticks(ctx.Done(), sessions.SweepEvery) {
		s.sweepOnce(ctx)
	}
}

// sweepOnce removes expired sessions and returns how many there were.
func (s *Stores) sweepOnce(ctx context.Context) (removed int) {
	for _, store := range s.all() {
		n, err := store.DeleteExpired(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("sweeping expired sessions failed; they stay inaccessible", "error", err)
		}
		removed += n
	}
	return removed
}

// FreeMemory removes what this agent holds of expired sessions and bindings, and returns free heap memory to the
// system.
func (s *Stores) FreeMemory(ctx context.Context) {
	removed, before := s.sweepOnce(ctx), heapBytes()
	bindings := s.Affinity.Len() // removes expired bindings first
	debug.FreeOSMemory()
	s.log.Info("session caches dropped", "expired_sessions", removed, "bindings", bindings, "heap_before", before,
		"heap_after", heapBytes())
}

// heapBytes returns the memory that the agent's heap holds from the system, in bytes.
func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapSys - m.HeapReleased
}
