package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
)

// janitor stops processes that no workflow manages any more: those of workers whose workflow is closed or has moved on to a higher
// incarnation. It also cancels workers whose pool is closed. A sweep costs a few cheap requests per process.
type janitor struct {
	temporal  client.Client
	processes *process.Supervisor
	log       *slog.Logger
}

const (
	janitorInterval    = 20 * time.Second
	janitorTimeout     = 10 * time.Second // of one request
	janitorStopTimeout = time.Minute      // of one process
	janitorStopGrace   = 5 * time.Second
)

func (j *janitor) run(ctx context.Context) {
	every(ctx, janitorInterval, func(time.Time) { j.sweep(ctx) })
}

func (j *janitor) sweep(ctx context.Context) {
	closedPools := map[string]bool{}
	var stops sync.WaitGroup
	for _, p := range j.processes.List() {
		pool, slot, err := api.ParseWorkerName(p.Worker())
		if err != nil {
			continue
		}
		logger := j.log.With("worker", p.Worker(), "incarnation", p.Incarnation())
		id := api.WorkerWorkflowID(pool, slot)
		if j.isClosed(ctx, id) {
			logger.Warn("stopping process: its workflow is closed")
			stops.Go(func() { j.stop(ctx, p) })
			continue
		}
		if state, known := j.state(ctx, id); known && isStale(state, p.Incarnation()) {
			logger.Warn("killing process: its worker has moved on to another incarnation", "newest", state.Incarnation)
			p.Kill("its worker has moved on to another incarnation")
			continue
		}
		if _, known := closedPools[pool]; !known {
			closedPools[pool] = j.isClosed(ctx, api.PoolWorkflowID(pool))
		}
		if closedPools[pool] {
			logger.Warn("cancelling worker: the workflow of its pool is closed")
			if err := j.temporal.CancelWorkflow(ctx, id, ""); err != nil {
				logger.Warn("cancelling worker failed", "error", err)
			}
		}
	}
	stops.Wait()
}

// isClosed reports whether a workflow is certainly not open. While Temporal does not answer, it returns false.
func (j *janitor) isClosed(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, janitorTimeout)
	defer cancel()
	description, err := j.temporal.DescribeWorkflowExecution(ctx, id, "")
	var notFound *serviceerror.NotFound
	if err != nil {
		return errors.As(err, &notFound)
	}
	status := description.GetWorkflowExecutionInfo().GetStatus()
	return status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING && status != enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
}

// isStale reports whether the worker does not manage an incarnation whose process existed before state was queried. A worker records
// an incarnation before it asks any host to start it.
func isStale(state api.WorkerState, incarnation int64) bool {
	switch {
	case incarnation == state.Incarnation, incarnation == state.Successor, slices.Contains(state.Draining, incarnation):
		return false
	case state.State == lifecycle.Starting && incarnation > state.Incarnation: // a later attempt of the same start
		return false
	}
	return true
}

// state queries a worker's state; false while the worker does not answer.
func (j *janitor) state(ctx context.Context, id string) (state api.WorkerState, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, janitorTimeout)
	defer cancel()
	value, err := j.temporal.QueryWorkflow(ctx, id, "", api.QueryState)
	if err != nil || value.Get(&state) != nil {
		return api.WorkerState{}, false
	}
	return state, true
}

func (j *janitor) stop(ctx context.Context, p *process.Process) {
	ctx, cancel := context.WithTimeout(ctx, janitorStopTimeout)
	defer cancel()
	if _, err := p.Stop(ctx, janitorStopGrace); err != nil {
		j.log.Warn("stopping process failed", "worker", p.Worker(), "error", err)
	}
}
