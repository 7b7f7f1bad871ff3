package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/worker"
)

// executePollInterval bounds how late ReserveSlot sees a free worker that the data plane did not announce.
const executePollInterval = time.Second

// executeSlots is the SDK slot supplier of a pool's task queue: it lets the agent poll the queue only while this host
// has a free worker of the pool, so calls wait in Temporal, where waiting is durable and any host may take them.
type executeSlots struct {
	pool string
	free func(pool string) (int, <-chan struct{}) // Dispatcher.FreeSlots

	begun atomic.Int64 // calls that the data plane counts itself

	mu       sync.Mutex
	permits  int64
	released chan struct{} // closed and replaced when a permit is released
}

func newExecuteSlots(pool string, free func(string) (int, <-chan struct{})) *executeSlots {
	return &executeSlots{pool: pool, free: free, released: make(chan struct{})}
}

// begin counts a call that the data plane has queued or placed, until ended is called.
func (s *executeSlots) begin() (ended func()) {
	s.begun.Add(1)
	return func() { s.begun.Add(-1) }
}

// tryReserve returns a permit, or two channels that are closed when a worker may have become free and when a permit is
// released.
func (s *executeSlots) tryReserve() (permit *worker.SlotPermit, changed, released <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.permits - s.begun.Load() // read before free, which then counts every call that is not pending
	free, changed := s.free(s.pool)
	if int64(free) <= pending {
		return nil, changed, s.released
	}
	s.permits++
	return &worker.SlotPermit{}, nil, nil
}

// ReserveSlot waits for a free worker.
func (s *executeSlots) ReserveSlot(ctx context.Context, _ worker.SlotReservationInfo) (*worker.SlotPermit, error) {
	timer := time.NewTimer(executePollInterval)
	defer timer.Stop()
	for {
		permit, changed, released := s.tryReserve()
		if permit != nil {
			return permit, nil
		}
		timer.Reset(executePollInterval)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		case <-released:
		case <-timer.C:
		}
	}
}

// TryReserveSlot reserves a slot if a worker is free, else it returns nil.
func (s *executeSlots) TryReserveSlot(worker.SlotReservationInfo) *worker.SlotPermit {
	permit, _, _ := s.tryReserve()
	return permit
}

// MarkSlotUsed does nothing: a permit counts from its reservation on.
func (s *executeSlots) MarkSlotUsed(worker.SlotMarkUsedInfo) {}

// ReleaseSlot releases a permit.
func (s *executeSlots) ReleaseSlot(worker.SlotReleaseInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.permits--
	close(s.released)
	s.released = make(chan struct{})
}

// MaxSlots returns 0: the number is not fixed.
func (s *executeSlots) MaxSlots() int { return 0 }
