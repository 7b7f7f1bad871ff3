package worker

import (
	"context"
	"sync"

	"go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/process"
)

// room hands out permission to poll a placement queue: only while the host has room for one more process. So Temporal itself
// places starts on hosts that can take them. It implements the SDK's slot supplier.
type room struct {
	capacity int

	mu      sync.Mutex
	taken   int                           // slots out: polling, or starting a process that is not settled yet
	settled map[*process.Process]struct{} // processes that became ready here and have not ended
	changed chan struct{}                 // closed and replaced when room may have come free
	watches sync.WaitGroup
}

func newRoom(capacity int) *room {
	return &room{capacity: capacity, settled: map[*process.Process]struct{}{}, changed: make(chan struct{})}
}

// settle counts a process until it ends. A second call for the same one changes nothing.
func (r *room) settle(p *process.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.settled[p]; known {
		return
	}
	r.settled[p] = struct{}{}
	r.watches.Add(1)
	p.AfterEnd(func() {
		defer r.watches.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.settled, p)
		r.wakeLocked()
	})
}

// wait waits until every process that was counted has ended.
func (r *room) wait() { r.watches.Wait() }

func (r *room) wakeLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// take takes a slot if there is one; otherwise it returns what to wait for.
func (r *room) take() (*worker.SlotPermit, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken+len(r.settled) >= r.capacity {
		return nil, r.changed
	}
	r.taken++
	return &worker.SlotPermit{}, nil
}

// ReserveSlot waits for room.
func (r *room) ReserveSlot(ctx context.Context, _ worker.SlotReservationInfo) (*worker.SlotPermit, error) {
	for {
		permit, changed := r.take()
		if permit != nil {
			return permit, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

// TryReserveSlot takes a slot if there is room now.
func (r *room) TryReserveSlot(worker.SlotReservationInfo) *worker.SlotPermit {
	permit, _ := r.take()
	return permit
}

// MarkSlotUsed changes nothing: a slot counts from its reservation on.
func (r *room) MarkSlotUsed(worker.SlotMarkUsedInfo) {}

// ReleaseSlot gives a slot back; the process its Start has left behind is settled by then.
func (r *room) ReleaseSlot(worker.SlotReleaseInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken--
	r.wakeLocked()
}

// MaxSlots is the host's capacity.
func (r *room) MaxSlots() int { return r.capacity }
