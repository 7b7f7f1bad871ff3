package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/worker"
)

// spareLook is the longest that a change is waited for of which the data plane may not know.
const spareLook = time.Second

// spares hands out permission to poll a pool's task queue: only while this host has a worker of the pool to spare. So calls wait in
// Temporal, where waiting is durable and any host may take them. It implements the SDK's slot supplier.
type spares struct {
	pool string
	free func(pool string) (int, <-chan struct{}) // as gateway.Spare

	placed atomic.Int64 // calls that the data plane counts itself, by now

	mu   sync.Mutex
	out  int64         // permits
	back chan struct{} // closed and replaced when a permit came back
}

func newSpares(pool string, free func(string) (int, <-chan struct{})) *spares {
	return &spares{pool: pool, free: free, back: make(chan struct{})}
}

// place counts a call that has its place in the data plane, until ended is called.
func (s *spares) place() (ended func()) {
	s.placed.Add(1)
	return func() { s.placed.Add(-1) }
}

// take takes a permit if there is a worker for it; otherwise it returns what to wait for.
func (s *spares) take() (permit *worker.SlotPermit, changed, back <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.out - s.placed.Load() // before the look, which then counts every call that is not pending
	spare, changed := s.free(s.pool)
	if int64(spare) <= pending {
		return nil, changed, s.back
	}
	s.out++
	return &worker.SlotPermit{}, nil, nil
}

// ReserveSlot waits for a worker to spare.
func (s *spares) ReserveSlot(ctx context.Context, _ worker.SlotReservationInfo) (*worker.SlotPermit, error) {
	timer := time.NewTimer(spareLook)
	defer timer.Stop()
	for {
		permit, changed, back := s.take()
		if permit != nil {
			return permit, nil
		}
		timer.Reset(spareLook)
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
func (s *spares) TryReserveSlot(worker.SlotReservationInfo) *worker.SlotPermit {
	permit, _, _ := s.take()
	return permit
}

// MarkSlotUsed changes nothing: a permit counts from its reservation on.
func (s *spares) MarkSlotUsed(worker.SlotMarkUsedInfo) {}

// ReleaseSlot gives a permit back.
func (s *spares) ReleaseSlot(worker.SlotReleaseInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out--
	close(s.back)
	s.back = make(chan struct{})
}

// MaxSlots says that there is no fixed number.
func (s *spares) MaxSlots() int { return 0 }
