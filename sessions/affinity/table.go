// Package affinity remembers which worker served a session last. Affinity is a preference: losing it costs speed, never
// correctness, so it is held in memory only.
package affinity

import (
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/sessions/expirylru"
)

const (
	// DefaultTTL is how long a binding lasts after its last use.
	DefaultTTL = 5 * time.Minute
	// MaxBindings limits a Table; one more binding evicts the least recently used one.
	MaxBindings = 100_000
)

// Table binds sessions to workers. Its methods are safe for concurrent use. Put, Lookup and Where take well under
// a microsecond; the others scan all bindings.
type Table struct {
	now func() time.Time

	mu       sync.Mutex
	bindings *expirylru.LRU[string] // workers by pool and session
	ttls     map[string]int64       // by pool, in milliseconds
	closed   map[string]int64       // workers that accept no new sessions, until when, in milliseconds since 1970
}

// New makes an empty table. now defaults to time.Now.
func New(now func() time.Time) *Table {
	if now == nil {
		now = time.Now
	}
	return &Table{
		now: now, bindings: expirylru.New[string](), ttls: make(map[string]int64),
		closed: make(map[string]int64),
	}
}

// SetTTL sets how long a pool's bindings last after their last use. 0 is DefaultTTL.
func (t *Table) SetTTL(pool string, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ttl == 0 {
		delete(t.ttls, pool)
		return
	}
	t.ttls[pool] = ttl.Milliseconds()
}

func (t *Table) ttlLocked(pool string) int64 {
	if ttl, set := t.ttls[pool]; set {
		return ttl
	}
	return DefaultTTL.Milliseconds()
}

// key is a binding's id; pool names contain no slash.
func key(pool, session string) string { return pool + "/" + session }

// Lookup returns the worker that a session is bound to, and extends the binding.
func (t *Table) Lookup(pool, session string) (worker string, found bool) {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.bindings.Live(key(pool, session), now)
	if e == nil {
		return "", false
	}
	t.bindings.Touch(e, now, t.ttlLocked(pool))
	return e.Value, true
}

// Put binds a session to the worker to, or removes its binding if to is "", provided that may agrees. may gets the
// worker that the session is bound to, "" for none, and whether to accepts no further sessions. It runs under the lock
// of the table, so it must be fast and must not use the table. Put returns that worker, and what may answered.
func (t *Table) Put(pool, session, to string, may func(bound string, closed bool) bool) (was string, done bool) {
	now, id := t.now().UnixMilli(), key(pool, session)
	t.mu.Lock()
	defer t.mu.Unlock()
	was = t.workerLocked(id, now)
	done = may(was, t.closedLocked(to, now))
	switch e := t.bindings.Get(id); {
	case !done:
	case to != "":
		t.bindLocked(id, pool, to, now)
	case e != nil:
		t.bindings.Remove(e)
	}
	return was, done
}

func (t *Table) bindLocked(id, pool, worker string, now int64) {
	e := t.bindings.Get(id)
	if e == nil {
		t.bindings.Sweep(now)
		if t.bindings.Len() >= MaxBindings {
			t.bindings.Remove(t.bindings.Oldest())
		}
		e = &expirylru.Entry[string]{ID: id, LastAccessed: now, TTL: t.ttlLocked(pool)}
		t.bindings.Add(e)
	}
	e.Value = worker
	t.bindings.Touch(e, now, t.ttlLocked(pool))
}

// UnbindWorker removes all bindings of a worker that has ended, and reopens it.
func (t *Table) UnbindWorker(worker string) {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.closed, worker)
	t.bindings.Sweep(now)
	for e := range t.bindings.All {
		if e.Value == worker {
			t.bindings.Remove(e)
		}
	}
}

// Pools removes expired bindings, and counts those of every pool that has any. It scans all bindings.
func (t *Table) Pools() map[string]int {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bindings.Sweep(now)
	pools := map[string]int{}
	for e := range t.bindings.All {
		pool, _, _ := strings.Cut(e.ID, "/")
		pools[pool]++
	}
	return pools
}
