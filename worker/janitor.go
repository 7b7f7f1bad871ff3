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

// janitor ends what no workflow answers for any more: processes of workers whose workflow was closed or has moved on to a
// higher incarnation, and workers whose pool was closed. It looks every so often; each look is one cheap request per process.
type janitor struct {
	temporal  client.Client
	processes *process.Supervisor
	log       *slog.Logger
}

const (
	janitorInterval = 20 * time.Second
	janitorTimeout  = 10 * time.Second
)

func newJanitor(c client.Client, processes *process.Supervisor, logger *slog.Logger) *janitor {
	return &janitor{c, processes, logger}
}

func (j *janitor) run(ctx context.Context) {
	ticker := time.NewTicker(janitorInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			j.sweep(ctx)
		}
	}
}

func (j *janitor) sweep(ctx context.Context) {
	closedPools := map[string]bool{}
	var stops sync.WaitGroup
	for _, p := range j.processes.List() {
		pool, slot, err := api.ParseWorkerName(p.Worker())
		if err != nil {
			continue
		}
		id := api.WorkerWorkflowID(pool, slot)
		if j.closed(ctx, id) {
			j.log.Warn("the workflow of this process was closed; the process is stopped", "worker", p.Worker(), "incarnation", p.Incarnation())
			stops.Go(func() { j.stop(ctx, p) })
			continue
		}
		if state, known := j.state(ctx, id); known && isStale(state, p.Incarnation()) {
			j.log.Warn("a process was superseded and is killed", "worker", p.Worker(), "incarnation", p.Incarnation(), "newest", state.Incarnation)
			p.Kill("it is none of its worker's incarnations any more")
			continue
		}
		if _, asked := closedPools[pool]; !asked {
			closedPools[pool] = j.closed(ctx, api.PoolWorkflowID(pool))
		}
		if closedPools[pool] {
			j.log.Warn("the pool of this worker was closed; the worker is asked to end", "worker", p.Worker())
			if err := j.temporal.CancelWorkflow(ctx, id, ""); err != nil {
				j.log.Warn("the worker could not be asked to end", "worker", p.Worker(), "error", err)
			}
		}
	}
	stops.Wait()
}

// closed reports whether Temporal says for certain that a workflow is not open.
func (j *janitor) closed(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, janitorTimeout)
	defer cancel()
	description, err := j.temporal.DescribeWorkflowExecution(ctx, id, "")
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		return true
	}
	if err != nil {
		return false
	}
	status := description.GetWorkflowExecutionInfo().GetStatus()
	return status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING && status != enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
}

// isStale reports whether an incarnation whose process was seen before the worker was asked is none that the worker answers
// for. A worker knows of an incarnation before any host is asked to start it.
func isStale(state api.WorkerState, incarnation int64) bool {
	switch {
	case incarnation == state.Incarnation, incarnation == state.Successor, slices.Contains(state.Leaving, incarnation):
		return false
	case state.State == lifecycle.Starting && incarnation > state.Incarnation: // a later try of the same start
		return false
	}
	return true
}

// state asks a worker for its state.
func (j *janitor) state(ctx context.Context, id string) (api.WorkerState, bool) {
	ctx, cancel := context.WithTimeout(ctx, janitorTimeout)
	defer cancel()
	value, err := j.temporal.QueryWorkflow(ctx, id, "", api.QueryState)
	if err != nil {
		return api.WorkerState{}, false
	}
	var state api.WorkerState
	if err := value.Get(&state); err != nil {
		return api.WorkerState{}, false
	}
	return state, true
}

func (j *janitor) stop(ctx context.Context, p *process.Process) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := p.Stop(ctx, 5*time.Second); err != nil {
		j.log.Warn("the process could not be stopped", "worker", p.Worker(), "error", err)
	}
}
