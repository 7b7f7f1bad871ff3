package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/worker"
)

// executePollInterval is the longest that a change is waited for of which the data plane may not know.
const executePollInterval = time.Second

// executeSlots hands out permission to poll a pool's task queue: only while this host has a worker of the pool to spare. So calls wait in
// Temporal, where waiting is durable and any host may take them. It implements the SDK's slot supplier.
type executeSlots struct {
	pool string
	free func(pool string) (int, <-chan struct{}) // as gateway.Spare

	begun atomic.Int64 // calls that the data plane counts itself, by now

	mu       sync.Mutex
	permits  int64         // permits
	released chan struct{} // closed and replaced when a permit came back
}

func newExecuteSlots(pool string, free func(string) (int, <-chan struct{})) *executeSlots {
	return &executeSlots{pool: pool, free: free, released: make(chan struct{})}
}

// begin counts a call that has its place in the data plane, until ended is called.
func (s *executeSlots) begin() (ended func()) {
	s.begun.Add(1)
	return func() { s.begun.Add(-1) }
}

// tryReserve takes a permit if there is a worker for it; otherwise it returns what to wait for.
func (s *executeSlots) tryReserve() (permit *worker.SlotPermit, changed, back <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.permits - s.begun.Load() // before the look, which then counts every call that is not pending
	spare, changed := s.free(s.pool)
	if int64(spare) <= pending {
		return nil, changed, s.released
	}
	s.permits++
	return &worker.SlotPermit{}, nil, nil
}

// ReserveSlot waits for a worker to spare.
func (s *executeSlots) ReserveSlot(ctx context.Context, _ worker.SlotReservationInfo) (*worker.SlotPermit, error) {
	timer := time.NewTimer(executePollInterval)
	defer timer.Stop()
	for {
		permit, changed, back := s.tryReserve()
		if permit != nil {
			return permit, nil
		}
		timer.Reset(executePollInterval)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		case <-back:
		case <-timer.C:
		}
	}
}

// TryReserveSlot takes a permit if there is a worker to spare now.
func (s *executeSlots) TryReserveSlot(worker.SlotReservationInfo) *worker.SlotPermit {
	permit, _, _ := s.tryReserve()
	return permit
}

// MarkSlotUsed changes nothing: a permit counts from its reservation on.
func (s *executeSlots) MarkSlotUsed(worker.SlotMarkUsedInfo) {}

// ReleaseSlot gives a permit back.
func (s *executeSlots) ReleaseSlot(worker.SlotReleaseInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.permits--
	close(s.released)
	s.released = make(chan struct{})
}

// MaxSlots says that there is no fixed number.
func (s *executeSlots) MaxSlots() int { return 0 }
