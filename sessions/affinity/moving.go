package affinity

import (
	"slices"
	"strings"
	"time"
)

// Follow notes that the worker serves the session, which was bound to was, "" for nobody, when the worker was chosen. If it is bound to
// another by now, somebody has moved it on purpose, and it stays there. A worker that is closed gets no binding by this.
func (t *Table) Follow(pool, session, was, worker string) {
	now, id := t.now().UnixMilli(), key(pool, session)
	t.mu.Lock()
	defer t.mu.Unlock()
	bound := ""
	if e := t.ledger.Live(id, now); e != nil {
		bound = e.Value
	}
	if bound == was && (bound == worker || !t.shut(worker, now)) {
		t.bind(id, pool, worker, now)
	}
}

// Where says which worker a session is bound to, "" for none. It counts no lookup and extends no binding's life.
func (t *Table) Where(pool, session string) (worker string) {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.ledger.Live(key(pool, session), now); e != nil {
		return e.Value
	}
	return ""
}

// Move binds a session to the worker to, closed or not, if it is bound to from, to nobody or there already; it reports whether the session
// is bound to it now.
func (t *Table) Move(pool, session, from, to string) bool {
	now, id := t.now().UnixMilli(), key(pool, session)
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.ledger.Live(id, now); e != nil && e.Value != from && e.Value != to {
		return false
	}
	t.bind(id, pool, to, now)
	return true
}

// UnbindFrom forgets a session if it is bound to this worker.
func (t *Table) UnbindFrom(pool, session, worker string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.ledger.Get(key(pool, session)); e != nil && e.Value == worker {
		t.ledger.Remove(e)
	}
}

// Counts says how many sessions of a pool are bound to each worker that has any.
func (t *Table) Counts(pool string) map[string]int {
	now := t.now().UnixMilli()
	counts := make(map[string]int)
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.ledger.All {
		if strings.HasPrefix(e.ID, pool+"/") && t.ledger.Live(e.ID, now) != nil {
			counts[e.Value]++
		}
	}
	return counts
}

// Page lists the first sessions bound to a worker whose ids follow after, in the order of their ids, at most limit of them, and says
// whether there are more.
func (t *Table) Page(worker, after string, limit int) (sessions []string, more bool) {
	now := t.now().UnixMilli()
	t.mu.Lock()
	for e := range t.ledger.All {
		if e.Value != worker || t.ledger.Live(e.ID, now) == nil {
			continue
		}
		if _, session, _ := strings.Cut(e.ID, "/"); session > after {
			sessions = append(sessions, session)
		}
	}
	t.mu.Unlock()
	slices.Sort(sessions)
	if len(sessions) > limit {
		return sessions[:limit:limit], true
	}
	return sessions, false
}

// Close keeps further sessions off a worker for a while, or until it goes (UnbindWorker); a time of 0 opens it again. What is bound to it stays.
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

// Closed lists the workers of a pool that are closed, sorted.
func (t *Table) Closed(pool string) (workers []string) {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	for worker := range t.closed {
		if strings.HasPrefix(worker, pool+"/") && t.shut(worker, now) {
			workers = append(workers, worker)
		}
	}
	slices.Sort(workers)
	return workers
}

// shut reports whether the worker is closed, under mu.
func (t *Table) shut(worker string, now int64) bool {
	until, is := t.closed[worker]
	if is && now >= until {
		delete(t.closed, worker)
		return false
	}
	return is
}
