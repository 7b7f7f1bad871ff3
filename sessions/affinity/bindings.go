package affinity

import (
	"cmp"
	"slices"
	"strings"
)

// Binding is a session and the worker it is bound to.
type Binding struct{ Session, Worker string }

// Bindings returns up to limit bindings of a pool's sessions with ids greater than after, ordered by id, and whether there are more. It extends none.
func (t *Table) Bindings(pool, after string, limit int) (page []Binding, more bool) {
	now := t.now().UnixMilli()
	t.mu.Lock()
	for e := range t.bindings.All {
		owner, session, _ := strings.Cut(e.ID, "/")
		if owner == pool && session > after && t.bindings.Live(e.ID, now) != nil {
			page = append(page, Binding{session, e.Value})
		}
	}
	t.mu.Unlock()
	slices.SortFunc(page, func(a, b Binding) int { return cmp.Compare(a.Session, b.Session) })
	if len(page) > limit {
		return page[:limit:limit], true
	}
	return page, false
}

// UnbindUnless removes a session's binding unless it is to this worker; "" removes any.
func (t *Table) UnbindUnless(pool, session, worker string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.bindings.Get(key(pool, session)); e != nil && e.Value != worker {
		t.bindings.Remove(e)
	}
}
