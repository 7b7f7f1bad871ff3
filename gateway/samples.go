package gateway

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/tempool/tempool/api"
)

// maxSlots bounds the numbers of workers that a request names: a pool has no more.
const maxSlots = 1000

// getSamples is GET /v1/pools/{pool}/samples: the newest samples of this host's workers of the pool, of ?workers=0,3 or
// of all.
func (g *Gateway) getSamples(_ context.Context, r *http.Request) ([]api.RecentSamples, error) {
	pool := r.PathValue("pool")
	if invalid := api.CheckPoolName(pool, api.CodePoolNotFound); invalid != nil {
		return nil, invalid
	}
	text := r.URL.Query().Get("workers")
	if text == "" {
		return g.config.Samples(pool, nil), nil
	}
	numbers := strings.SplitN(text, ",", maxSlots+1)
	if len(numbers) > maxSlots {
		return nil, api.Errorf(api.CodeInvalid, "workers names more than %d numbers; leave it out for all workers", maxSlots)
	}
	slots := make([]int, len(numbers))
	for i, number := range numbers {
		slot, err := strconv.Atoi(number)
		if err != nil || slot < 0 {
			return nil, api.Errorf(api.CodeInvalid, "workers has %q, which is not the number of a worker; it must be like 0,3",
				number[:min(len(number), 100)])
		}
		slots[i] = slot
	}
	return g.config.Samples(pool, slots), nil
}

// getQueue is GET /v1/pools/{pool}/queue: how long the queue of the pool was at this gateway.
func (g *Gateway) getQueue(_ context.Context, r *http.Request) (*api.RecentQueue, error) {
	pool := r.PathValue("pool")
	if invalid := api.CheckPoolName(pool, api.CodePoolNotFound); invalid != nil {
		return nil, invalid
	}
	recent := g.RecentQueue(pool)
	return &recent, nil
}
