// Package affinity remembers which worker served a session last. It is a preference: losing it costs speed, never correctness, so it
// lives in memory.
package affinity

import (
	"sync"
	"time"

	"github.com/tempool/tempool/sessions/ledger"
)

const (
	// DefaultTTL is how long a binding lasts since its last use.
	DefaultTTL = 5 * time.Minute
	// MaxBindings bounds a Table; one more drops the binding that was not used for longest.
	MaxBindings = 100_000
)

// Table binds sessions to workers. Its methods are safe for concurrent use and take well under a microsecond, UnbindWorker excepted,
// which looks at every binding.
type Table struct {
	now func() time.Time

	mu     sync.Mutex
	ledger *ledger.Ledger[string] // the worker, by pool and session
	ttls   map[string]int64       // of pools, in milliseconds
	looks  map[string]*Looks      // of pools
	closed map[string]int64       // workers that get no further sessions, and until when, in milliseconds since 1970
}

// New makes an empty table. The default of now is time.Now.
func New(now func() time.Time) *Table {
	if now == nil {
		now = time.Now
	}
	return &Table{now: now, ledger: ledger.New[string](), ttls: make(map[string]int64), looks: make(map[string]*Looks), closed: make(map[string]int64)}
}

// SetTTL sets how long the pool's bindings last since their last use; without it that is DefaultTTL.
func (t *Table) SetTTL(pool string, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ttls[pool] = ttl.Milliseconds()
}

func (t *Table) ttl(pool string) int64 {
	if ttl, set := t.ttls[pool]; set {
		return ttl
	}
	return DefaultTTL.Milliseconds()
}

// key of a binding: no pool's name holds a slash.
func key(pool, session string) string { return pool + "/" + session }

// Lookup finds the worker that a session prefers, and counts whether there is one.
func (t *Table) Lookup(pool, session string) (worker string, found bool) {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.ledger.Live(key(pool, session), now)
	if e == nil {
		t.looksOf(pool).Misses++
		return "", false
	}
	t.looksOf(pool).Hits++
	t.ledger.Touch(e, now, t.ttl(pool))
	return e.Value, true
}

// Bind notes that the session was served by the worker.
func (t *Table) Bind(pool, session, worker string) {
	now, id := t.now().UnixMilli(), key(pool, session)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bind(id, pool, worker, now)
}

// bind is Bind under mu.
func (t *Table) bind(id, pool, worker string, now int64) {
	if e := t.ledger.Get(id); e != nil {
		e.Value = worker
		t.ledger.Touch(e, now, t.ttl(pool))
		return
	}
	t.ledger.Sweep(now, func(*ledger.Entry[string]) {})
	if t.ledger.Len() >= MaxBindings {
		t.ledger.Remove(t.ledger.Oldest())
	}
	t.ledger.Add(&ledger.Entry[string]{ID: id, LastAccessed: now, TTL: t.ttl(pool), Value: worker})
}

// Unbind forgets a session, and reports whether it was bound.
func (t *Table) Unbind(pool, session string) bool {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.ledger.Get(key(pool, session))
	if e == nil {
		return false
	}
	live := t.ledger.Live(e.ID, now) != nil
	t.ledger.Remove(e)
	return live
}

// UnbindWorker forgets the sessions of a worker that has gone, and that it was closed, and says how many sessions those were.
func (t *Table) UnbindWorker(worker string) (unbound int) {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.closed, worker)
	t.ledger.Sweep(now, func(*ledger.Entry[string]) {})
	for e := range t.ledger.All {
		if e.Value == worker {
			t.ledger.Remove(e)
			unbound++
		}
	}
	return unbound
}

// Len counts the bindings.
func (t *Table) Len() int {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ledger.Sweep(now, func(*ledger.Entry[string]) {})
	return t.ledger.Len()
}
