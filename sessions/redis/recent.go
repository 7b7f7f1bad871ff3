package redis

import (
	"container/list"
	"sync"
)

const (
	// recentBytes bounds what a store remembers of sessions, and recentOne what it remembers of one.
	recentBytes = 8 << 20
	recentOne   = 32 << 10
)

// recent remembers sessions as this store has left or found them, the ones used last. What it has may be outdated: whoever changes it has
// the server compare. It is safe for concurrent use.
type recent struct {
	mu    sync.Mutex
	byID  map[string]*list.Element // of *remembered
	order *list.List               // the one used last in front
	bytes int
}

type remembered struct {
	record
	bytes int
}

func newRecent() *recent { return &recent{byID: make(map[string]*list.Element), order: list.New()} }

// keep remembers a record, whose session nobody may change any more; bytes is the length of its body.
func (r *recent) keep(of record, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(of.ID)
	if bytes > recentOne {
		return
	}
	bytes += len(of.ID) + 1000 // of maps and headers
	r.byID[of.ID] = r.order.PushFront(&remembered{of, bytes})
	for r.bytes += bytes; r.bytes > recentBytes; {
		r.drop(r.order.Back().Value.(*remembered).ID)
	}
}

// find returns what is remembered of a session; its word is "" for nothing.
func (r *recent) find(id string) (found record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.byID[id]; e != nil {
		r.order.MoveToFront(e)
		found = e.Value.(*remembered).record
	}
	return found
}

// take returns what is remembered of a session and forgets it: whoever changes it keeps what comes of that.
func (r *recent) take(id string) (found record, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byID[id]
	if e == nil {
		return found, false
	}
	found = e.Value.(*remembered).record
	r.drop(id)
	return found, true
}

func (r *recent) drop(id string) {
	if e := r.byID[id]; e != nil {
		r.bytes -= e.Value.(*remembered).bytes
		r.order.Remove(e)
		delete(r.byID, id)
	}
}
