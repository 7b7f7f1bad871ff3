package affinity

import (
	"cmp"
	"slices"
	"strings"
)

// Binding is a session and the worker it is bound to.
type Binding struct{ Session, Worker string }

// Bindings returns up to limit (at least 1) bindings of a pool's sessions with ids greater than after, ordered by id,
// and whether there are more. It extends none.
func (t *Table) Bindings(pool, after string, limit int) (page []Binding, more bool) {
	now, prefix := t.now().UnixMilli(), pool+"/"
	page = make([]Binding, 0, 2*limit)
	keepFirst := func() {
		slices.SortFunc(page, func(a, b Binding) int { return cmp.Compare(a.Session, b.Session) })
		if len(page) > limit {
			page, more = page[:limit], true
		}
	}
	t.mu.Lock()
	for e := range t.bindings.All {
		session, ofPool := strings.CutPrefix(e.ID, prefix)
		if !ofPool || session <= after || more && session > page[limit-1].Session || t.bindings.Live(e.ID, now) == nil {
			continue
		}
		if page = append(page, Binding{session, e.Value}); len(page) > limit && len(page) == cap(page) {
			keepFirst()
		}
	}
	t.mu.Unlock()
	keepFirst()
	return page, more
}

// UnbindUnless removes a session's binding unless it is to this worker; "" removes any.
func (t *Table) UnbindUnless(pool, session, worker string) {
	t.unbindIf(pool, session, func(bound string) bool { return bound != worker })
}

// UnbindFrom removes a session's binding if it is to this worker.
func (t *Table) UnbindFrom(pool, session, worker string) {
	t.unbindIf(pool, session, func(bound string) bool { return bound == worker })
}

func (t *Table) unbindIf(pool, session string, matches func(worker string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.bindings.Get(key(pool, session)); e != nil && matches(e.Value) {
		t.bindings.Remove(e)
	}
}
