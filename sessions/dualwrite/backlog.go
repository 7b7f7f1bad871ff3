package dualwrite

import (
	"maps"
	"slices"
	"sync"
)

// maxBacklog limits the sessions that a backlog lists. Above it, only a comparison finds what the secondary lacks.
const maxBacklog = 200_000

// backlog lists the sessions with an operation in progress, and those that the secondary may not have in their current
// state.
type backlog struct {
	mu sync.Mutex
	// busy counts the operations in progress by session.
	busy map[string]int
	// pending holds sessions to copy to the secondary: true if changed, false if only used.
	pending map[string]bool
	// overflowed means that a session was not listed because pending was full.
	overflowed bool
}

func newBacklog() *backlog {
	return &backlog{busy: make(map[string]int), pending: make(map[string]bool)}
}

func (b *backlog) begin(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy[id]++
}

func (b *backlog) end(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy[id]--; b.busy[id] == 0 {
		delete(b.busy, id)
	}
}

// add adds a session that was changed, or only used.
func (b *backlog) add(id string, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, listed := b.pending[id]; !listed && len(b.pending) >= maxBacklog {
		b.overflowed = true
		return
	}
	b.pending[id] = b.pending[id] || changed
}

// take removes a session. The caller takes it before copying it, so that a change during the copy adds it again.
func (b *backlog) take(id string) (changed, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed, found = b.pending[id]
	delete(b.pending, id)
	return changed, found
}

func (b *backlog) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.pending))
}

// unsettled reports whether a session has an operation in progress or is pending, so that a difference between the
// stores is expected.
func (b *backlog) unsettled(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, pending := b.pending[id]
	return pending || b.busy[id] > 0
}

// len counts the sessions that are pending or have an operation, such as a flush, in progress.
func (b *backlog) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.pending)
	for id := range b.busy {
		if _, pending := b.pending[id]; !pending {
			n++
		}
	}
	return n
}

// changes counts the pending sessions that were changed, not only used.
func (b *backlog) changes() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, changed := range b.pending {
		if changed {
			n++
		}
	}
	return n
}

// takeOverflow reports whether the backlog has overflowed, and resets that.
func (b *backlog) takeOverflow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	overflowed := b.overflowed
	b.overflowed = false
	return overflowed
}
