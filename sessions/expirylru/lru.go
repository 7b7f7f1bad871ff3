// Package expirylru is a map of entries that expire, ordered by their last use. It has no clock and no lock: the caller
// passes the time and holds a lock.
package expirylru

import (
	"cmp"
	"slices"

	"github.com/tempool/tempool/internal/ordered"
)

// Entry is one value with its expiry. Times are milliseconds since 1970, TTL is in milliseconds. Callers may change
// Value only; Touch changes the times.
type Entry[V any] struct {
	ID           string
	LastAccessed int64
	TTL          int64
	Value        V

	at   int   // in LRU.byUse
	used int64 // as LastAccessed, but never before an earlier use of another entry
	use  int64 // orders entries of the same used
}

func (e *Entry[V]) expiresAt() int64 { return e.LastAccessed + e.TTL }

// LRU holds entries until they are removed or swept; an expired entry counts until then. Use New.
type LRU[V any] struct {
	byID  map[string]*Entry[V]
	byUse ordered.Heap[*Entry[V]] // the least recently used one first
	uses  int64                   // so far
	used  int64                   // the latest of all entries so far
	// earliest is a lower bound of all expiry times, so that Sweep can return without a scan.
	earliest int64
}

// New makes an empty LRU.
func New[V any]() *LRU[V] {
	return &LRU[V]{byID: make(map[string]*Entry[V]), byUse: ordered.Heap[*Entry[V]]{
		Before: func(x, y *Entry[V]) bool { return earlier(x, y) < 0 }, Place: func(e *Entry[V]) *int { return &e.at }}}
}

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

// Add adds an entry, whose last use may be earlier than that of others; Touch makes it a use now. Its id must be new.
func (l *LRU[V]) Add(e *Entry[V]) {
	if len(l.byID) == 0 || e.expiresAt() < l.earliest {
		l.earliest = e.expiresAt()
	}
	l.byID[e.ID] = e
	l.uses++
	e.used, e.use = e.LastAccessed, l.uses
	l.used = max(l.used, e.used)
	l.byUse.Push(e)
}

// Touch notes a use of an entry, which makes it the most recently used one, and sets its TTL. LastAccessed never goes
// backwards.
func (l *LRU[V]) Touch(e *Entry[V], now, ttl int64) {
	l.uses++
	l.used = max(l.used, now)
	e.LastAccessed, e.TTL, e.used, e.use = max(e.LastAccessed, now), ttl, l.used, l.uses
	l.earliest = min(l.earliest, e.expiresAt())
	l.byUse.Fix(e)
}

// Remove removes an entry.
func (l *LRU[V]) Remove(e *Entry[V]) {
	delete(l.byID, e.ID)
	l.byUse.Remove(e)
}

// Oldest returns the least recently used entry, or nil.
func (l *LRU[V]) Oldest() *Entry[V] { return l.byUse.First() }

// All yields every entry in no order. The loop body may remove the entry it was given.
func (l *LRU[V]) All(yield func(*Entry[V]) bool) {
	for _, e := range l.byID {
		if !yield(e) {
			return
		}
	}
}

// IDs are the ids of all entries, least recently used first.
func (l *LRU[V]) IDs() []string { return IDs(slices.SortedFunc(slices.Values(l.byUse.Items), earlier)) }

// Sweep removes the entries that have expired at now and returns them, least recently used first. It returns in
// constant time while none can have expired.
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
	slices.SortFunc(expired, earlier)
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

func earlier[V any](x, y *Entry[V]) int {
	return cmp.Or(cmp.Compare(x.used, y.used), cmp.Compare(x.use, y.use))
}
