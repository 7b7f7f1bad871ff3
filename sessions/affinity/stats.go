package affinity

import "strings"

// PoolStats counts a pool's lookups since the table was made or ForgetLookups, and its current bindings.
type PoolStats struct {
	// Hits are lookups that found a worker, Misses those that did not.
	Hits, Misses int64
	Bindings     int
}

func (t *Table) statsLocked(pool string) *PoolStats {
	s := t.stats[pool]
	if s == nil {
		s = &PoolStats{}
		t.stats[pool] = s
	}
	return s
}

// ForgetLookups drops the statistics of a pool.
func (t *Table) ForgetLookups(pool string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.stats, pool)
}

// Pools returns the statistics of every pool with a lookup or a binding. It scans all bindings.
func (t *Table) Pools() map[string]PoolStats {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bindings.Sweep(now)
	pools := make(map[string]PoolStats, len(t.stats))
	for pool, s := range t.stats {
		pools[pool] = *s
	}
	for e := range t.bindings.All {
		pool, _, _ := strings.Cut(e.ID, "/")
		s := pools[pool]
		s.Bindings++
		pools[pool] = s
	}
	return pools
}
