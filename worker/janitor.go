package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/activities/sweeper"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
)

// janitor stops processes that no workflow manages any more: those of workers whose workflow is closed or has moved on
// to a higher incarnation. A sweep queries each pool once, and inspects the workflows of the processes that their pool
// does not name: the sweeper reports a workflow that has closed to its pool. Inspecting all of them was most of what
// idle workers cost Temporal.
type janitor struct {
	temporal  client.Client
	control   lease.Control
	processes *process.Supervisor
	log       *slog.Logger
}

const (
	janitorInterval    = 20 * time.Second
	janitorTimeout     = 10 * time.Second // of one description; control bounds its requests itself
	janitorStopTimeout = time.Minute      // of one process
	janitorStopGrace   = 5 * time.Second
)

func (j *janitor) run(ctx context.Context) {
	for range sleep.Ticks(ctx.Done(), janitorInterval) {
		j.sweep(ctx)
	}
}

func (j *janitor) sweep(ctx context.Context) {
	pools := map[string]api.PoolStatus{}
	var stops sync.WaitGroup
	for _, p := range j.processes.List() {
		name, slot, err := api.ParseWorkerName(p.Worker())
		if err != nil {
			continue
		}
		if _, known := pools[name]; !known {
			pools[name], _ = j.control.Status(ctx, name) // one that is closed or does not answer names none
		}
		if names(pools[name], slot, p.Incarnation()) {
			continue
		}
		logger := j.log.With("worker", p.Worker(), "incarnation", p.Incarnation())
		if j.isClosed(ctx, api.WorkerWorkflowID(name, slot)) {
			logger.Warn("stopping process: its workflow is closed")
			stops.Go(func() { j.stop(ctx, p) })
			continue
		}
		if state, err := j.control.State(ctx, p.Worker()); err == nil && isStale(state, p.Incarnation()) {
			logger.Warn("killing process: its worker has moved on to another incarnation", "newest", state.Incarnation)
			p.Kill("its worker has moved on to another incarnation")
		}
	}
	stops.Wait()
}

// names reports whether an incarnation is the newest of its slot in a pool's roster, and its workflow is open. The
// worker may already have a newer one; the pool soon learns of it, so the next sweep finds out.
func names(pool api.PoolStatus, slot int, incarnation int64) bool {
	return slices.ContainsFunc(pool.Workers, func(w api.RosterEntry) bool {
		return w.Slot == slot && w.Incarnation == incarnation && !w.Gone
	})
}

// isClosed reports whether a workflow is certainly not open; false while Temporal does not answer.
func (j *janitor) isClosed(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, janitorTimeout)
	defer cancel()
	description, err := j.temporal.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return isNotFound(err)
	}
	return !sweeper.IsOpen(description.GetWorkflowExecutionInfo().GetStatus())
}

// isStale reports whether the worker does not manage an incarnation whose process existed before state was queried. A
// worker records an incarnation before it asks any host to start it.
func isStale(state api.WorkerState, incarnation int64) bool {
	return incarnation != state.Incarnation && incarnation != state.Successor &&
		!slices.Contains(state.Draining, incarnation)
}

func (j *janitor) stop(ctx context.Context, p *process.Process) {
	ctx, cancel := context.WithTimeout(ctx, janitorStopTimeout)
	defer cancel()
	if _, err := p.Stop(ctx, janitorStopGrace); err != nil {
		j.log.Warn("stopping process failed", "worker", p.Worker(), "error", err)
	}
}
