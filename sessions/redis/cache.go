package redis

import (
	"sync"

	"github.com/tempool/tempool/sessions/expirylru"
)

const (
	// cacheBytes limits the cache, and maxCachedBody one session in it.
	cacheBytes    = 8 << 20
	maxCachedBody = 32 << 10
)

// cache holds the most recently used sessions as this store last read or wrote them. Its content may be outdated: the
// server compares before it accepts a change. It is safe for concurrent use.
type cache struct {
	mu      sync.Mutex
	entries *expirylru.LRU[cached] // that never expire; the order of their uses counts
	bytes   int
}

type cached struct {
	record
	bytes int
}

func newCache() *cache { return &cache{entries: expirylru.New[cached]()} }

// put adds a record, whose session must not be modified afterwards; bytes is the length of its body.
func (c *cache) put(r record, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(c.entries.Get(r.ID))
	if bytes > maxCachedBody {
		return
	}
	bytes += len(r.ID) + 1000 // an estimate of maps and headers
	c.entries.Add(&expirylru.Entry[cached]{ID: r.ID, Value: cached{r, bytes}})
	for c.bytes += bytes; c.bytes > cacheBytes; {
		c.dropLocked(c.entries.Oldest())
	}
}

// get returns a session's record; its writeID is "" if there is none.
func (c *cache) get(id string) (r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries.Get(id); e != nil {
		c.entries.Touch(e, 0, 0)
		r = e.Value.record
	}
	return r
}

// note takes over when the session was last used, unless the cache has another write of it.
func (c *cache) note(r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries.Get(r.ID); e != nil && e.Value.writeID == r.writeID {
		e.Value.accessed = max(e.Value.accessed, r.accessed)
	}
}

// take removes a session's record and returns it.
func (c *cache) take(id string) (r record, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries.Get(id)
	if e == nil {
		return r, false
	}
	c.dropLocked(e)
	return e.Value.record, true
}

func (c *cache) dropLocked(e *expirylru.Entry[cached]) {
	if e != nil {
		c.bytes -= e.Value.bytes
		c.entries.Remove(e)
	}
}
