// Package ledger is what a store that lives in one process knows by heart: which sessions there are, until when each lives, and
// in which order they were used. It has no clock and no lock: its user holds one.
package ledger

import (
	"cmp"
	"slices"
)

// Entry is one session. Times are milliseconds since 1970. ID must not be changed; the times only through the Ledger.
type Entry[V any] struct {
	ID           string
	Version      int64
	Created      int64
	LastAccessed int64
	TTL          int64
	Value        V

	older, newer *Entry[V]
}

func (e *Entry[V]) expires() int64 { return e.LastAccessed + e.TTL }

// Ledger holds entries, expired ones included until they are removed. The zero value is not ready; use New.
type Ledger[V any] struct {
	byID           map[string]*Entry[V]
	oldest, newest *Entry[V]
	// earliest is no later than the first expiry, so that a sweep knows when it cannot find anything.
	earliest int64
}

// New makes an empty ledger.
func New[V any]() *Ledger[V] { return &Ledger[V]{byID: make(map[string]*Entry[V])} }

// Len counts all entries.
func (l *Ledger[V]) Len() int { return len(l.byID) }

// Get returns an entry whether it has expired or not, or nil.
func (l *Ledger[V]) Get(id string) *Entry[V] { return l.byID[id] }

// Live returns the entry if it has not expired at now, or nil.
func (l *Ledger[V]) Live(id string, now int64) *Entry[V] {
	if e := l.byID[id]; e != nil && now < e.expires() {
		return e
	}
	return nil
}

// Add puts in an entry as the one used last. None of its id may be there.
func (l *Ledger[V]) Add(e *Entry[V]) {
	if len(l.byID) == 0 || e.expires() < l.earliest {
		l.earliest = e.expires()
	}
	l.byID[e.ID] = e
	l.append(e)
}

// Insert puts in an entry at the place that the time of its last use gives it. None of its id may be there.
func (l *Ledger[V]) Insert(e *Entry[V]) {
	l.Add(e)
	before := e.older
	for before != nil && before.LastAccessed > e.LastAccessed {
		before = before.older
	}
	if before == e.older {
		return
	}
	l.unlink(e)
	e.older = before
	if before != nil {
		e.newer, before.newer = before.newer, e
	} else {
		e.newer, l.oldest = l.oldest, e
	}
	e.newer.older = e
}

// Touch notes a use at now, which an earlier now than the last does not set back, and the life from then on.
func (l *Ledger[V]) Touch(e *Entry[V], now, ttl int64) {
	e.LastAccessed, e.TTL = max(e.LastAccessed, now), ttl
	l.earliest = min(l.earliest, e.expires())
	if l.newest != e {
		l.unlink(e)
		l.append(e)
	}
}

// Remove takes out an entry.
func (l *Ledger[V]) Remove(e *Entry[V]) {
	delete(l.byID, e.ID)
	l.unlink(e)
}

// Oldest is the entry that was not used for longest, or nil.
func (l *Ledger[V]) Oldest() *Entry[V] { return l.oldest }

// All yields every entry, the one that was not used for longest first. The entry it yields may be removed meanwhile.
func (l *Ledger[V]) All(yield func(*Entry[V]) bool) {
	for e := l.oldest; e != nil; {
		next := e.newer
		if !yield(e) {
			return
		}
		e = next
	}
}

// Sweep removes what has expired at now and hands each to removed. It costs next to nothing while nothing can have expired.
func (l *Ledger[V]) Sweep(now int64, removed func(*Entry[V])) {
	if len(l.byID) == 0 || now < l.earliest {
		return
	}
	first := true
	for e := range l.All {
		if now >= e.expires() {
			l.Remove(e)
			removed(e)
		} else if first || e.expires() < l.earliest {
			l.earliest, first = e.expires(), false
		}
	}
}

func (l *Ledger[V]) append(e *Entry[V]) {
	e.older, e.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = e
	} else {
		l.oldest = e
	}
	l.newest = e
}

func (l *Ledger[V]) unlink(e *Entry[V]) {
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		l.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		l.newest = e.older
	}
	e.older, e.newer = nil, nil
}

// ByUse are entries that are yet to be added.
type ByUse[V any] []*Entry[V]

// AddTo adds them in the order of their last use.
func (b ByUse[V]) AddTo(l *Ledger[V]) {
	slices.SortStableFunc(b, func(x, y *Entry[V]) int { return cmp.Compare(x.LastAccessed, y.LastAccessed) })
	for _, e := range b {
		l.Add(e)
	}
}
