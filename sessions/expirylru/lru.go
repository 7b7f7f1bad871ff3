// Package expirylru is a map of entries that expire, ordered by their last use. It has no clock and no lock: the caller
// passes the time and holds a lock.
package expirylru

import (
	"cmp"
	"container/heap"
	"container/list"
	"slices"
)

// Entry is one value with its expiry. Times are milliseconds since 1970, TTL is in milliseconds. Callers may change
// Value only; Touch changes the times.
type Entry[V any] struct {
	ID           string
	LastAccessed int64
	TTL          int64
	Value        V

	element *list.Element // nil for an entry of LRU.old
	at      int           // in LRU.old
}

func (e *Entry[V]) expiresAt() int64 { return e.LastAccessed + e.TTL }

// LRU holds entries until they are removed or swept; an expired entry counts until then. Use New.
type LRU[V any] struct {
	byID map[string]*Entry[V]
	// order has the entries in the order of their use, least recently used first. Those inserted with an earlier use are
	// in old, until they are used: a walk to their place would make a restore of many sessions quadratic.
	order *list.List // of *Entry[V]
	old   byLastUse[V]
	// earliest is a lower bound of all expiry times, so that Sweep can return without a scan.
	earliest int64
}

// New makes an empty LRU.
func New[V any]() *LRU[V] { return &LRU[V]{byID: make(map[string]*Entry[V]), order: list.New()} }

// Len counts all entries, expired ones included.
func (l *LRU[V]) Len() int { return len(l.byID) }

// Get returns an entry, expired or not, or nil.
func (l *LRU[V]) Get(id string) *Entry[V] { return l.byID[id] }

// Live returns the entry if it has not expired at now, else nil.
func (l *LRU[V]) Live(id string, now int64) *Entry[V] {
	if e := l.byID[id]; e != nil && now < e.expiresAt() {
		return e
	}
	return nil
}

// Add adds an entry as the most recently used one. Its id must be new.
func (l *LRU[V]) Add(e *Entry[V]) {
	l.index(e)
	e.element = l.order.PushBack(e)
}

// Insert adds an entry whose last use may be earlier than that of others, in logarithmic time. Its id must be new.
func (l *LRU[V]) Insert(e *Entry[V]) {
	if newest := l.order.Back(); newest == nil || newest.Value.(*Entry[V]).LastAccessed <= e.LastAccessed {
		l.Add(e)
		return
	}
	l.index(e)
	heap.Push(&l.old, e)
}

// AddAll sorts entries by LastAccessed and adds them. Their ids must be new.
func (l *LRU[V]) AddAll(entries []*Entry[V]) {
	slices.SortStableFunc(entries, byUse)
	for _, e := range entries {
		l.Add(e)
	}
}

func (l *LRU[V]) index(e *Entry[V]) {
	if len(l.byID) == 0 || e.expiresAt() < l.earliest {
		l.earliest = e.expiresAt()
	}
	l.byID[e.ID] = e
}

// Touch makes an entry the most recently used one and sets its TTL. LastAccessed never goes backwards.
func (l *LRU[V]) Touch(e *Entry[V], now, ttl int64) {
	e.LastAccessed, e.TTL = max(e.LastAccessed, now), ttl
	l.earliest = min(l.earliest, e.expiresAt())
	if e.element == nil {
		heap.Remove(&l.old, e.at)
		e.element = l.order.PushBack(e)
		return
	}
	l.order.MoveToBack(e.element)
}

// Remove removes an entry.
func (l *LRU[V]) Remove(e *Entry[V]) {
	delete(l.byID, e.ID)
	if e.element == nil {
		heap.Remove(&l.old, e.at)
		return
	}
	l.order.Remove(e.element)
}

// Oldest returns the least recently used entry, or nil.
func (l *LRU[V]) Oldest() *Entry[V] {
	var oldest *Entry[V]
	if first := l.order.Front(); first != nil {
		oldest = first.Value.(*Entry[V])
	}
	if len(l.old) > 0 && (oldest == nil || l.old[0].LastAccessed < oldest.LastAccessed) {
		return l.old[0]
	}
	return oldest
}

// All yields every entry, least recently used first. The loop body may remove the entry it was given.
func (l *LRU[V]) All(yield func(*Entry[V]) bool) {
	old := slices.SortedFunc(slices.Values(l.old), byUse)
	for at := l.order.Front(); at != nil; {
		e, next := at.Value.(*Entry[V]), at.Next()
		for ; len(old) > 0 && old[0].LastAccessed < e.LastAccessed; old = old[1:] {
			if !yield(old[0]) {
				return
			}
		}
		if !yield(e) {
			return
		}
		at = next
	}
	for _, e := range old {
		if !yield(e) {
			return
		}
	}
}

// Sweep removes the entries that have expired at now and returns them. It returns in constant time while none can have
// expired.
func (l *LRU[V]) Sweep(now int64) (expired []*Entry[V]) {
	if len(l.byID) == 0 || now < l.earliest {
		return nil
	}
	first := true
	for e := range l.All {
		if now >= e.expiresAt() {
			l.Remove(e)
			expired = append(expired, e)
		} else if first || e.expiresAt() < l.earliest {
			l.earliest, first = e.expiresAt(), false
		}
	}
	return expired
}

// IDs are the ids of entries.
func IDs[V any](entries []*Entry[V]) []string {
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.ID
	}
	return ids
}

func byUse[V any](x, y *Entry[V]) int { return cmp.Compare(x.LastAccessed, y.LastAccessed) }

// byLastUse is a heap of entries.
type byLastUse[V any] []*Entry[V]

func (h byLastUse[V]) Len() int           { return len(h) }
func (h byLastUse[V]) Less(i, j int) bool { return byUse(h[i], h[j]) < 0 }

func (h byLastUse[V]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push is for container/heap.
func (h *byLastUse[V]) Push(x any) {
	e := x.(*Entry[V])
	e.at = len(*h)
	*h = append(*h, e)
}

// Pop is for container/heap.
func (h *byLastUse[V]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
