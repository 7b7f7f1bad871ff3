package worker

import (
	"context"
	"sync"

	"go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/process"
)

// placementSlots is the SDK slot supplier of the placement queues: it lets the agent poll them only while the host has capacity for
// one more process, so Temporal places starts only on hosts that can run them.
type placementSlots struct {
	capacity int

	mu        sync.Mutex
	reserved  int                           // slots that poll, or start a process that is not in running yet
	running   map[*process.Process]struct{} // processes that became ready and have not ended
	changed   chan struct{}                 // closed and replaced when a slot may have become free
	processes sync.WaitGroup
}

func newPlacementSlots(capacity int) *placementSlots {
	return &placementSlots{capacity: capacity, running: map[*process.Process]struct{}{}, changed: make(chan struct{})}
}

// add counts a process until it ends. Adding the same process again changes nothing.
func (r *placementSlots) add(p *process.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.running[p]; known {
		return
	}
	r.running[p] = struct{}{}
	r.processes.Add(1)
	p.AfterEnd(func() {
		defer r.processes.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, p)
		r.notifyLocked()
	})
}

// wait returns when every added process has ended.
func (r *placementSlots) wait() { r.processes.Wait() }

func (r *placementSlots) notifyLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// tryReserve returns a permit, or a channel that is closed when a slot may have become free.
func (r *placementSlots) tryReserve() (*worker.SlotPermit, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reserved+len(r.running) >= r.capacity {
		return nil, r.changed
	}
	r.reserved++
	return &worker.SlotPermit{}, nil
}

// ReserveSlot waits for a free slot.
func (r *placementSlots) ReserveSlot(ctx context.Context, _ worker.SlotReservationInfo) (*worker.SlotPermit, error) {
	for {
		permit, changed := r.tryReserve()
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

// TryReserveSlot reserves a slot if one is free, else it returns nil.
func (r *placementSlots) TryReserveSlot(worker.SlotReservationInfo) *worker.SlotPermit {
	permit, _ := r.tryReserve()
	return permit
}

// MarkSlotUsed does nothing: a slot counts from its reservation on.
func (r *placementSlots) MarkSlotUsed(worker.SlotMarkUsedInfo) {}

// ReleaseSlot releases a slot. A process that its Start left running has been added by then.
func (r *placementSlots) ReleaseSlot(worker.SlotReleaseInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved--
	r.notifyLocked()
}

// MaxSlots returns the host's capacity.
func (r *placementSlots) MaxSlots() int { return r.capacity }
