package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// readyzTimeout bounds the requests of tempool ps to all gateways together.
	readyzTimeout = time.Second
	// controlPlaneOK is what a gateway reports if it reaches Temporal.
	controlPlaneOK = "ok"
)

// addControlPlane sets ControlPlane of every worker to what its gateway reports. It asks each gateway once, all of them
// concurrently, and leaves out those that do not answer: tempool may not reach a gateway that its clients do.
func (a *app) addControlPlane(ctx context.Context, cp controlPlane, views []api.PoolWorkers) {
	ctx, cancel := context.WithTimeout(ctx, min(readyzTimeout, a.timeout))
	defer cancel()
	workers := map[string][]*api.Worker{} // by gateway
	for _, view := range views {
		for i := range view.Workers {
			if w := &view.Workers[i]; w.Endpoint != "" {
				workers[w.Endpoint] = append(workers[w.Endpoint], w)
			}
		}
	}
	endpoints := slices.Collect(maps.Keys(workers))
	sleep.Each(len(endpoints), len(endpoints), func(i int) {
		answer, _ := cp.ControlPlane(ctx, endpoints[i])
		for _, w := range workers[endpoints[i]] {
			w.ControlPlane = answer
		}
	})
}

// controlPlaneSummary sums up what the gateways report; it is empty if none answered.
func controlPlaneSummary(views []api.PoolWorkers) string {
	var lost []string
	answered := false
	for _, worker := range workersOf(views) {
		answered = answered || worker.ControlPlane != ""
		if worker.ControlPlane != "" && worker.ControlPlane != controlPlaneOK && !slices.Contains(lost, worker.Host) {
			lost = append(lost, worker.Host)
		}
	}
	switch {
	case !answered:
		return ""
	case len(lost) == 0:
		return "control plane ok"
	}
	return "control plane lost on " + strings.Join(lost, ", ") + " (calls continue under held leases)"
}
