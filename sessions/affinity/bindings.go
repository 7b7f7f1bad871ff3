package affinity

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
)

// Bindings returns up to limit (at least 1) bindings of sessions with ids greater than after to a worker of a pool, ""
// for all its workers, ordered by id, and whether there are more. It extends none.
func (t *Table) Bindings(pool, worker, after string, limit int) (page []api.SessionBinding, more bool) {
	page = make([]api.SessionBinding, 0, 2*limit)
	keepFirst := func() {
		slices.SortFunc(page, func(a, b api.SessionBinding) int { return cmp.Compare(a.Session, b.Session) })
		if len(page) > limit {
			page, more = page[:limit], true
		}
	}
	t.mu.Lock()
	t.eachLocked(pool, func(session, bound string) {
		if session <= after || more && session > page[limit-1].Session || worker != "" && bound != worker {
			return
		}
		page = append(page, api.SessionBinding{Session: session, Worker: bound})
		if len(page) > limit && len(page) == cap(page) {
			keepFirst()
		}
	})
	t.mu.Unlock()
	keepFirst()
	return page, more
}

// eachLocked calls do for each binding of a pool.
func (t *Table) eachLocked(pool string, do func(session, worker string)) {
	now, prefix := t.now().UnixMilli(), pool+"/"
	for e := range t.bindings.All {
		if session, ofPool := strings.CutPrefix(e.ID, prefix); ofPool && t.bindings.Live(e.ID, now) != nil {
			do(session, e.Value)
		}
	}
}

// Where returns the worker that a session is bound to, or "". It extends no binding.
func (t *Table) Where(pool, session string) (worker string) {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.workerLocked(key(pool, session), now)
}

func (t *Table) workerLocked(id string, now int64) string {
	if e := t.bindings.Live(id, now); e != nil {
		return e.Value
	}
	return ""
}

// Counts returns the number of bindings of each worker of a pool that has any.
func (t *Table) Counts(pool string) map[string]int {
	counts := make(map[string]int)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.eachLocked(pool, func(_, worker string) { counts[worker]++ })
	return counts
}

// Close stops binding further sessions to a worker for a while, or until it ends (UnbindWorker); 0 reopens it. Existing
// bindings stay.
func (t *Table) Close(worker string, lasting time.Duration) {
	until := t.now().Add(lasting).UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	if lasting <= 0 {
		delete(t.closed, worker)
		return
	}
	t.closed[worker] = until
}

// Closed lists the closed workers of a pool, sorted.
func (t *Table) Closed(pool string) (workers []string) {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	for worker := range t.closed {
		if strings.HasPrefix(worker, pool+"/") && t.closedLocked(worker, now) {
			workers = append(workers, worker)
		}
	}
	slices.Sort(workers)
	return workers
}

// closedLocked reports whether the worker is closed. It forgets a closing that has run out.
func (t *Table) closedLocked(worker string, now int64) bool {
	until, closed := t.closed[worker]
	if closed && now >= until {
		delete(t.closed, worker)
		return false
	}
	return closed
}
