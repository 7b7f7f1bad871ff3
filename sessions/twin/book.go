package twin

import (
	"maps"
	"slices"
	"sync"
)

// maxOwed bounds what a book names. Beyond it only a comparison can tell what the follower lacks.
const maxOwed = 200_000

// book knows which sessions are being changed, and which the follower may not have as they are.
type book struct {
	mu sync.Mutex
	// moving counts the operations under way, by session.
	moving map[string]int
	// owed are sessions the follower has to be given. True for those that were changed, and not only used.
	owed map[string]bool
	// overflown says that some owed ones have no name here.
	overflown bool
}

func newBook() *book { return &book{moving: make(map[string]int), owed: make(map[string]bool)} }

func (b *book) begin(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moving[id]++
}

func (b *book) end(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.moving[id]--; b.moving[id] == 0 {
		delete(b.moving, id)
	}
}

// owe notes a session that was changed, or only used, and which the follower may not have so.
func (b *book) owe(id string, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.owed[id]; !known && len(b.owed) >= maxOwed {
		b.overflown = true
		return
	}
	b.owed[id] = b.owed[id] || changed
}

// take removes a session from those owed before it is given, so that what is owed meanwhile stays. It reports whether it was owed, and
// changed.
func (b *book) take(id string) (changed, owed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed, owed = b.owed[id]
	delete(b.owed, id)
	return changed, owed
}

func (b *book) list() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.owed))
}

// unsettled reports whether a session moves or is owed, so that a difference means nothing.
func (b *book) unsettled(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, owed := b.owed[id]
	return owed || b.moving[id] > 0
}

func (b *book) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.owed)
}

func (b *book) owedWrites() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, changed := range b.owed {
		if changed {
			n++
		}
	}
	return n
}

// overflow reports and forgets whether there was more than can be named.
func (b *book) overflow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.overflown
	b.overflown = false
	return was
}
