package metrics

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// statusCacheTTL is how long an answer is reused, so that many scrapers cost one query.
	statusCacheTTL = 5 * time.Second
	// statusMaxAge is the age at which the last answer is dropped while no newer one arrives.
	statusMaxAge = time.Minute
	// statusTimeout bounds the queries of one scrape, of which statusConcurrency run at once.
	statusTimeout     = 2 * time.Second
	statusConcurrency = 8
)

// poolStatusCache queries the status of pools when it is read. A query leaves no trace in a workflow's history.
type poolStatusCache struct {
	query func(ctx context.Context, pool string) (api.PoolStatus, error)

	mu        sync.Mutex // held during queries, so that concurrent readers share them
	queriedAt time.Time
	answers   map[string]poolAnswer
}

type poolAnswer struct {
	status api.PoolStatus
	at     time.Time
}

func newPoolStatusCache(query func(ctx context.Context, pool string) (api.PoolStatus, error)) *poolStatusCache {
	return &poolStatusCache{query: query, answers: make(map[string]poolAnswer)}
}

// read returns the known status of these pools, and of the pools read before that still run. While reachable is false
// it queries none.
func (r *poolStatusCache) read(pools []string, reachable bool) map[string]api.PoolStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if reachable && now.Sub(r.queriedAt) >= statusCacheTTL {
		r.refreshLocked(pools)
		r.queriedAt = time.Now()
	}
	current := make(map[string]api.PoolStatus, len(r.answers))
	for pool, answer := range r.answers {
		if now.Sub(answer.at) < statusMaxAge {
			current[pool] = answer.status
		}
	}
	return current
}

// refreshLocked queries pools. It removes those that have ended, and keeps the last answer of those that do not answer.
func (r *poolStatusCache) refreshLocked(pools []string) {
	wanted := make(map[string]bool, len(pools)+len(r.answers))
	for _, pool := range pools {
		wanted[pool] = true
	}
	for pool := range r.answers {
		wanted[pool] = true
	}
	askAll(slices.Collect(maps.Keys(wanted)), r.query, func(pool string, status api.PoolStatus, err error) {
		switch {
		case err == nil:
			r.answers[pool] = poolAnswer{status, time.Now()}
		case errors.Is(err, api.ErrPoolNotFound):
			delete(r.answers, pool)
		}
	})
}

// askAll asks about each name, statusConcurrency of them at once and all within statusTimeout. It calls answered with
// one answer after the other.
func askAll[T any](names []string, ask func(context.Context, string) (T, error),
	answered func(name string, answer T, err error)) {
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	var mu sync.Mutex
	sleep.Each(len(names), statusConcurrency, func(i int) {
		answer, err := ask(ctx, names[i])
		mu.Lock()
		defer mu.Unlock()
		answered(names[i], answer, err)
	})
}

const (
	// lengthMaxAge is the age at which the length of a history is requested again.
	lengthMaxAge = time.Minute
	// lengthsPerScrape bounds how many lengths one scrape asks for, the oldest first; the others keep their last values.
	lengthsPerScrape = 64
)

// historyLengths knows how long the histories of workflows are. Asking costs the server one read of its cache, and
// leaves no trace.
type historyLengths struct {
	describe func(ctx context.Context, workflowID string) (int64, error)

	mu    sync.Mutex // held while lengths are asked for, so that concurrent readers share the answers
	known map[string]historyLength
}

type historyLength struct {
	events int64
	at     time.Time
}

func newHistoryLengths(describe func(ctx context.Context, workflowID string) (int64, error)) *historyLengths {
	return &historyLengths{describe: describe, known: map[string]historyLength{}}
}

// read returns the known lengths of these workflows' histories, by workflow ID. While reachable is false it asks for
// none.
func (h *historyLengths) read(workflowIDs []string, reachable bool) map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := make(map[string]historyLength, len(workflowIDs))
	var stale []string
	for _, id := range workflowIDs {
		l := h.known[id]
		wanted[id] = l
		if time.Since(l.at) >= lengthMaxAge {
			stale = append(stale, id)
		}
	}
	h.known = wanted // forgets the workflows that nobody asks for
	if reachable {
		slices.SortFunc(stale, func(a, b string) int { return wanted[a].at.Compare(wanted[b].at) })
		h.refreshLocked(stale[:min(len(stale), lengthsPerScrape)])
	}
	lengths := map[string]int64{}
	for id, l := range h.known {
		if l.events > 0 {
			lengths[id] = l.events
		}
	}
	return lengths
}

func (h *historyLengths) refreshLocked(workflowIDs []string) {
	askAll(workflowIDs, h.describe, func(id string, events int64, err error) {
		if err == nil {
			h.known[id] = historyLength{events, time.Now()}
		}
	})
}
