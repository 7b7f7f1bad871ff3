package redis

import (
	"container/list"
	"sync"
)

const (
	// cacheBytes limits the cache, and maxCachedBody one session in it.
	cacheBytes    = 8 << 20
	maxCachedBody = 32 << 10
)

// cache holds the most recently used sessions as this store last read or wrote them. Its content may be outdated: the
// server compares before it accepts a change. It is safe for concurrent use.
type cache struct {
	mu    sync.Mutex
	byID  map[string]*list.Element // of *cached
	order *list.List               // most recently used first
	bytes int
}

type cached struct {
	record
	bytes int
}

func newCache() *cache { return &cache{byID: make(map[string]*list.Element), order: list.New()} }

// put adds a record, whose session must not be modified afterwards; bytes is the length of its body.
func (c *cache) put(r record, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(r.ID)
	if bytes > maxCachedBody {
		return
	}
	bytes += len(r.ID) + 1000 // an estimate of maps and headers
	c.byID[r.ID] = c.order.PushFront(&cached{r, bytes})
	for c.bytes += bytes; c.bytes > cacheBytes; {
		c.dropLocked(c.order.Back().Value.(*cached).ID)
	}
}

// get returns a session's record; its writeID is "" if there is none.
func (c *cache) get(id string) (r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byID[id]; e != nil {
		c.order.MoveToFront(e)
		r = e.Value.(*cached).record
	}
	return r
}

// note takes over when the session was last used, unless the cache has another write of it.
func (c *cache) note(r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byID[r.ID]; e != nil && e.Value.(*cached).writeID == r.writeID {
		e.Value.(*cached).accessed = max(e.Value.(*cached).accessed, r.accessed)
	}
}

// take removes a session's record and returns it.
func (c *cache) take(id string) (r record, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byID[id]
	if e == nil {
		return r, false
	}
	r = e.Value.(*cached).record
	c.dropLocked(id)
	return r, true
}

func (c *cache) dropLocked(id string) {
	if e := c.byID[id]; e != nil {
		c.bytes -= e.Value.(*cached).bytes
		c.order.Remove(e)
		delete(c.byID, id)
	}
}
