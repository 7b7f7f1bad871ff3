package metrics

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
)

const (
	// statusCacheTTL is how long a pool's answer counts, so that many scrapers cost no more than one.
	statusCacheTTL = 5 * time.Second
	// statusMaxAge is how long the last answer is told of while there is no newer one. Later than that it would be a lie.
	statusMaxAge = time.Minute
	// statusTimeout bounds how long one scrape waits for pools to answer, and statusConcurrency how many are asked at one time.
	statusTimeout     = 2 * time.Second
	statusConcurrency = 8
)

// poolStatusCache asks the pools' workflows how they stand, at scrapes and only then. One query a pool leaves no trace in its history.
type poolStatusCache struct {
	query func(ctx context.Context, pool string) (api.PoolStatus, error)

	mu        sync.Mutex // held while asking: who comes meanwhile finds the answers
	queriedAt time.Time
	answers   map[string]poolAnswer
}

type poolAnswer struct {
	status api.PoolStatus
	at     time.Time
}

func newPoolStatusCache(ask func(ctx context.Context, pool string) (api.PoolStatus, error)) *poolStatusCache {
	return &poolStatusCache{query: ask, answers: make(map[string]poolAnswer)}
}

// read is what is known of these pools and of those asked for before that are still running; no pool is asked while reachable is
// false.
func (r *poolStatusCache) read(pools []string, reachable bool) map[string]api.PoolStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if reachable && now.Sub(r.queriedAt) >= statusCacheTTL {
		r.refresh(pools)
		r.queriedAt = time.Now()
	}
	current := make(map[string]api.PoolStatus, len(r.answers))
	for pool, s := range r.answers {
		if now.Sub(s.at) < statusMaxAge {
			current[pool] = s.status
		}
	}
	return current
}

// refresh asks, under mu. A pool that is no more is forgotten; one that does not answer keeps its last answer.
func (r *poolStatusCache) refresh(pools []string) {
	wanted := make(map[string]bool, len(pools)+len(r.answers))
	for _, pool := range pools {
		wanted[pool] = true
	}
	for pool := range r.answers {
		wanted[pool] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	var results sync.Mutex
	var group errgroup.Group
	group.SetLimit(statusConcurrency)
	for pool := range wanted {
		group.Go(func() error {
			status, err := r.query(ctx, pool)
			results.Lock()
			defer results.Unlock()
			switch {
			case err == nil:
				r.answers[pool] = poolAnswer{status, time.Now()}
			case errors.Is(err, api.ErrPoolNotFound):
				delete(r.answers, pool)
			}
			return nil
		})
	}
	_ = group.Wait() // its functions have no error to give
}
