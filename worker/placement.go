package worker

import (
	"context"
	"sync"

	"go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/process"
)

// room hands out permission to poll a placement queue: only while the host has room for one more process. So Temporal itself
// places starts on hosts that can take them. It implements the SDK's slot supplier.
type placementSlots struct {
	capacity int

	mu        sync.Mutex
	reserved  int                           // slots out: polling, or starting a process that is not settled yet
	running   map[*process.Process]struct{} // processes that became ready here and have not ended
	changed   chan struct{}                 // closed and replaced when room may have come free
	processes sync.WaitGroup
}

func newPlacementSlots(capacity int) *placementSlots {
	return &placementSlots{capacity: capacity, running: map[*process.Process]struct{}{}, changed: make(chan struct{})}
}

// add counts a process until it ends. A second call for the same one changes nothing.
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

// waitClosed waits until every process that was counted has ended.
func (r *placementSlots) wait() { r.processes.Wait() }

func (r *placementSlots) notifyLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// tryReserve takes a slot if there is one; otherwise it returns what to wait for.
func (r *placementSlots) tryReserve() (*worker.SlotPermit, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reserved+len(r.running) >= r.capacity {
		return nil, r.changed
	}
	r.reserved++
	return &worker.SlotPermit{}, nil
}

// ReserveSlot waits for room.
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

// TryReserveSlot takes a slot if there is room now.
func (r *placementSlots) TryReserveSlot(worker.SlotReservationInfo) *worker.SlotPermit {
	permit, _ := r.tryReserve()
	return permit
}

// MarkSlotUsed changes nothing: a slot counts from its reservation on.
func (r *placementSlots) MarkSlotUsed(worker.SlotMarkUsedInfo) {}

// ReleaseSlot gives a slot back; the process its Start has left behind is settled by then.
func (r *placementSlots) ReleaseSlot(worker.SlotReleaseInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved--
	r.notifyLocked()
}

// MaxSlots is the host's capacity.
func (r *placementSlots) MaxSlots() int { return r.capacity }
