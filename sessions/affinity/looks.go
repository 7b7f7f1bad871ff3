package affinity

import (
	"strings"

	"github.com/tempool/tempool/sessions/ledger"
)

// Looks counts the lookups of a pool's sessions since the table was made, and its bindings now.
type Looks struct {
	// Hits found a worker, Misses did not.
	Hits, Misses int64
	Bindings     int
}

// looksOf is under mu.
func (t *Table) looksOf(pool string) *Looks {
	l := t.looks[pool]
	if l == nil {
		l = &Looks{}
		t.looks[pool] = l
	}
	return l
}

// Pools tells of each pool that was looked up or has a binding. It looks at every binding.
func (t *Table) Pools() map[string]Looks {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ledger.Sweep(now, func(*ledger.Entry[string]) {})
	bindings := make(map[string]int)
	for e := range t.ledger.All {
		pool, _, _ := strings.Cut(e.ID, "/")
		bindings[pool]++
	}
	told := make(map[string]Looks, len(t.looks))
	for pool, l := range t.looks {
		told[pool] = Looks{l.Hits, l.Misses, bindings[pool]}
	}
	for pool, n := range bindings {
		if t.looks[pool] == nil {
			told[pool] = Looks{Bindings: n}
		}
	}
	return told
}

// Lookups says how many lookups of all pools found a worker and how many did not.
func (t *Table) Lookups() (hits, misses int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.looks {
		hits, misses = hits+l.Hits, misses+l.Misses
	}
	return hits, misses
}
