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
	// statusFresh is how long a pool's answer counts, so that many scrapers cost no more than one.
	statusFresh = 5 * time.Second
	// statusKept is how long the last answer is told of while there is no newer one. Later than that it would be a lie.
	statusKept = time.Minute
	// statusPatience bounds how long one scrape waits for pools to answer, and statusAtOnce how many are asked at one time.
	statusPatience = 2 * time.Second
	statusAtOnce   = 8
)

// poolReader asks the pools' workflows how they stand, at scrapes and only then. One query a pool leaves no trace in its history.
type poolReader struct {
	ask func(ctx context.Context, pool string) (api.PoolStatus, error)

	mu    sync.Mutex // held while asking: who comes meanwhile finds the answers
	asked time.Time
	known map[string]standing
}

type standing struct {
	status api.PoolStatus
	at     time.Time
}

func newPoolReader(ask func(ctx context.Context, pool string) (api.PoolStatus, error)) *poolReader {
	return &poolReader{ask: ask, known: make(map[string]standing)}
}

// read is what is known of these pools and of those asked for before that are still running; no pool is asked while reachable is
// false.
func (r *poolReader) read(pools []string, reachable bool) map[string]api.PoolStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if reachable && now.Sub(r.asked) >= statusFresh {
		r.refresh(pools)
		r.asked = time.Now()
	}
	current := make(map[string]api.PoolStatus, len(r.known))
	for pool, s := range r.known {
		if now.Sub(s.at) < statusKept {
			current[pool] = s.status
		}
	}
	return current
}

// refresh asks, under mu. A pool that is no more is forgotten; one that does not answer keeps its last answer.
func (r *poolReader) refresh(pools []string) {
	wanted := make(map[string]bool, len(pools)+len(r.known))
	for _, pool := range pools {
		wanted[pool] = true
	}
	for pool := range r.known {
		wanted[pool] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusPatience)
	defer cancel()
	var results sync.Mutex
	var group errgroup.Group
	group.SetLimit(statusAtOnce)
	for pool := range wanted {
		group.Go(func() error {
			status, err := r.ask(ctx, pool)
			results.Lock()
			defer results.Unlock()
			switch {
			case err == nil:
				r.known[pool] = standing{status, time.Now()}
			case errors.Is(err, api.ErrPoolNotFound):
				delete(r.known, pool)
			}
			return nil
		})
	}
	_ = group.Wait() // its functions have no error to give
}
