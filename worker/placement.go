package worker

import (
	"maps"
	"sync"
	"time"

	"go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
)

// placementSlots is the SDK slot supplier of the placement queues: it lets the agent poll them only while the host has
// capacity for one more process, so Temporal places starts only on hosts that can run them.
type placementSlots struct {
	slotWaiter
	capacity int

	mu        sync.Mutex
	reserved  int                           // slots that poll, or start a process that is not in running yet
	executing map[*worker.SlotPermit]bool   // those of them that do not poll
	promised  map[string]time.Time          // until when a slot is kept for a worker that waited for one
	running   map[*process.Process]struct{} // processes that became ready and have not ended
	changes   sleep.Changes                 // a slot may have become free
	pausedFor time.Duration                 // since the last start that succeeded
	paused    time.Time                     // until when the host takes no start, because it had no resources for one
	draining  bool                          // the host takes no start until an operator says otherwise
	processes sync.WaitGroup
}

func newPlacementSlots(capacity int) *placementSlots {
	r := &placementSlots{capacity: capacity, running: map[*process.Process]struct{}{},
		executing: map[*worker.SlotPermit]bool{}, promised: map[string]time.Time{}}
	r.tryReserve = r.reserve
	return r
}

// add counts a process until it ends. Adding the same process again changes nothing.
func (r *placementSlots) add(p *process.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.running[p]; known {
		return
	}
	delete(r.promised, p.Worker())
	r.pausedFor = 0
	r.running[p] = struct{}{}
	r.processes.Add(1)
	p.AfterEnd(func() {
		defer r.processes.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, p)
		r.changes.Announce()
	})
}

// The shortest and the longest time for which a host takes no start after one for which it had no resources.
const (
	minPause = 5 * time.Second
	maxPause = time.Minute
)

// pause keeps starts from this host for a while, which doubles until one succeeds. Those that it has polled already
// still run.
func (r *placementSlots) pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); !now.Before(r.paused) {
		r.pausedFor = min(max(minPause, 2*r.pausedFor), maxPause)
		r.paused = now.Add(r.pausedFor)
	}
}

// drain keeps starts from this host, or lets it take them again.
func (r *placementSlots) drain(draining bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = draining
	r.changes.Announce()
}

// isDraining reports whether the host takes no start. Those that it had polled before have to be refused.
func (r *placementSlots) isDraining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// reserve is tryReserve: changed is closed when a slot may have become free, and wait is how long the host is paused.
func (r *placementSlots) reserve() (permit *worker.SlotPermit, changed, _ <-chan struct{}, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = max(0, time.Until(r.paused))
	if r.draining || wait > 0 || r.reserved+len(r.running) >= r.capacity {
		return nil, r.changes.Next(), nil, wait
	}
	r.reserved++
	return new(worker.SlotPermit), nil, nil, 0
}

// MarkSlotUsed notes that a slot has its activity.
func (r *placementSlots) MarkSlotUsed(info worker.SlotMarkUsedInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.executing[info.Permit()] = true
}

// promiseTimeout is how long a slot is kept for a worker that waited for one: its workflow has to schedule the start.
const promiseTimeout = 5 * time.Second

// promise keeps a slot for a worker that waits for one, and reports whether there is a slot that is not kept for
// another worker. So one free slot wakes one of the workers that wait, and not all of them. The caller is an activity
// that occupies a slot itself.
func (r *placementSlots) promise(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.promised, func(other string, until time.Time) bool { return other == name || !now.Before(until) })
	if r.draining || len(r.running)+len(r.executing)-1+len(r.promised) >= r.capacity {
		return false
	}
	r.promised[name] = now.Add(promiseTimeout)
	return true
}

// ReleaseSlot releases a slot. A process that its Start left running has been added by then.
func (r *placementSlots) ReleaseSlot(info worker.SlotReleaseInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.executing, info.Permit())
	r.reserved--
	r.changes.Announce()
}

// MaxSlots returns the host's capacity.
func (r *placementSlots) MaxSlots() int { return r.capacity }
