package gateway

import (
	"context"
	_ "embed"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
)

// getPools is GET /v1/pools: those that the client may use.
func (g *Gateway) getPools(ctx context.Context, r *http.Request) ([]api.PoolWorkers, error) {
	principal := principalOf(r)
	names, err := g.config.Control.ListPools(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	pools := make([]api.PoolWorkers, 0, len(names))
	for _, name := range names {
		if !principal.MayUse(name) {
			continue
		}
		pool, err := g.workers(ctx, name)
		if errors.Is(err, api.ErrPoolNotFound) {
			continue // it has ended since
		}
		if err != nil {
			return nil, err
		}
		pools = append(pools, pool)
	}
	return pools, nil
}

func (g *Gateway) getPool(ctx context.Context, r *http.Request) (api.PoolWorkers, error) {
	return g.workers(ctx, r.PathValue("pool"))
}

func (g *Gateway) getReport(ctx context.Context, r *http.Request) (policy.Report, error) {
	pool, err := g.workers(ctx, r.PathValue("pool"))
	switch {
	case err != nil:
		return policy.Report{}, err
	case pool.Ended:
		return policy.Report{}, api.Errorf(api.CodePoolNotFound,
			"pool %s has ended; tempool pool list shows the running pools", pool.Pool)
	}
	return policy.NewReport(pool, time.Now()), nil
}

// workers lists a pool's workers without the hashes of their leases' tokens.
func (g *Gateway) workers(ctx context.Context, name string) (api.PoolWorkers, error) {
	pool, err := g.config.Control.Workers(ctx, name)
	for i := range pool.Workers {
		if lease := pool.Workers[i].Lease; lease != nil {
			lease.TokenHash = ""
		}
	}
	return pool, err
}

func (g *Gateway) getWorkers(ctx context.Context, r *http.Request) ([]api.Worker, error) {
	pools, err := g.getPools(ctx, r)
	workers := []api.Worker{}
	for _, pool := range pools {
		workers = append(workers, pool.Workers...)
	}
	return workers, err
}

func getHealth(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (g *Gateway) getReady(w http.ResponseWriter, _ *http.Request) {
	health := g.Health()
	ready := api.Readiness{Status: "ready", Host: g.config.HostID, ControlPlane: "ok",
		LostForMS: health.Outage.Milliseconds()}
	status := http.StatusOK
	if !health.ControlPlane {
		ready.ControlPlane = "lost"
	}
	if health.Fenced {
		ready.Status, status = "fenced", http.StatusServiceUnavailable
	}
	if health.Closing {
		ready.Status, status = "closing", http.StatusServiceUnavailable
	}
	writeJSON(w, status, ready)
}

// maxSlots bounds the numbers of workers that a request names: a pool has no more.
const maxSlots = 1000

// getSamples is GET /v1/pools/{pool}/samples: the newest samples of this host's workers of the pool, of ?workers=0,3 or
// of all.
func (g *Gateway) getSamples(_ context.Context, r *http.Request) ([]api.RecentSamples, error) {
	pool := r.PathValue("pool")
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
func (g *Gateway) getQueue(_ context.Context, r *http.Request) (api.RecentQueue, error) {
	return g.RecentQueue(r.PathValue("pool")), nil
}

// openAPI describes the routes.
//
//go:embed openapi.json
var openAPI []byte

func getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI) // fails only if the client is gone
}
