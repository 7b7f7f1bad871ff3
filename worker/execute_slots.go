package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/internal/sleep"
)

// executePollInterval bounds how late executeSlots see a free worker that the data plane did not announce.
const executePollInterval = time.Second

// slotWaiter is what slot suppliers of the SDK have in common.
type slotWaiter struct {
	// tryReserve returns a permit, or channels that are closed when there may be one, and after how long there may be one
	// anyway; 0 is never.
	tryReserve func() (permit *worker.SlotPermit, changed, released <-chan struct{}, wait time.Duration)
}

// ReserveSlot waits for a free slot.
func (w slotWaiter) ReserveSlot(ctx context.Context, _ worker.SlotReservationInfo) (*worker.SlotPermit, error) {
	for {
		permit, changed, released, wait := w.tryReserve()
		if permit != nil {
			return permit, nil
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		case <-released:
		case <-due:
		}
	}
}

// TryReserveSlot reserves a slot if one is free, else it returns nil.
func (w slotWaiter) TryReserveSlot(worker.SlotReservationInfo) *worker.SlotPermit {
	permit, _, _, _ := w.tryReserve()
	return permit
}

// executeSlots is the SDK slot supplier of a pool's task queue: it lets the agent poll the queue only while this host
// has a free worker of the pool, so calls wait in Temporal, where waiting is durable and any host may take them.
type executeSlots struct {
	slotWaiter
	pool string
	free func(pool string) (int, <-chan struct{}) // Dispatcher.FreeSlots

	begun atomic.Int64 // calls that the data plane counts itself

	mu       sync.Mutex
	permits  int64
	released sleep.Changes // of permits
}

func newExecuteSlots(pool string, free func(string) (int, <-chan struct{})) *executeSlots {
	s := &executeSlots{pool: pool, free: free}
	s.tryReserve = s.reserve
	return s
}

// begin counts a call that the data plane has queued or placed, until ended is called.
func (s *executeSlots) begin() (ended func()) {
	s.begun.Add(1)
	return func() { s.begun.Add(-1) }
}

// reserve is tryReserve: changed is closed when a worker may have become free, released when a permit is released.
func (s *executeSlots) reserve() (permit *worker.SlotPermit, changed, released <-chan struct{}, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.permits - s.begun.Load() // read before free, which then counts every call that is not pending
	free, changed := s.free(s.pool)
	if int64(free) <= pending {
		return nil, changed, s.released.Next(), executePollInterval
	}
	s.permits++
	return new(worker.SlotPermit), nil, nil, 0
}

// MarkSlotUsed does nothing: a permit counts from its reservation on.
func (s *executeSlots) MarkSlotUsed(worker.SlotMarkUsedInfo) {}

// ReleaseSlot releases a permit.
func (s *executeSlots) ReleaseSlot(worker.SlotReleaseInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.permits--
	s.released.Announce()
}

// MaxSlots returns 0: the number is not fixed.
func (s *executeSlots) MaxSlots() int { return 0 }
