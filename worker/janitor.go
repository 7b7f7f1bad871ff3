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
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
)

// janitor stops processes that no workflow manages any more: those of workers whose workflow is closed or has moved on
// to a higher incarnation. A sweep queries each pool once. It inspects the workflow of a process only if the process is
// new, if the pool does not name its incarnation, or if it is the turn of that process: the sweeper reports a workflow
// that has closed to its pool. Inspecting all of them, and querying all workers, was most of what idle workers cost
// Temporal.
type janitor struct {
	temporal  client.Client
	processes *process.Supervisor
	log       *slog.Logger

	inspections map[*process.Process]inspection
}

// resident is a process of this host, with its place in a pool.
type resident struct {
	process     *process.Process
	pool        string
	slot        int
	incarnation int64
}

func (r resident) workflowID() string { return api.WorkerWorkflowID(r.pool, r.slot) }

// inspection is the last one of the workflow of a process. Its run has confirmed the process, unless it is "".
type inspection struct {
	at  time.Time
	run string
}

const (
	janitorInterval    = 20 * time.Second
	janitorTimeout     = 10 * time.Second // of one request
	janitorStopTimeout = time.Minute      // of one process
	janitorStopGrace   = 5 * time.Second
	// janitorTurns is the number of processes that a sweep inspects without a particular reason. A pool may not know yet
	// what happened to a workflow.
	janitorTurns = 16
)

func (j *janitor) run(ctx context.Context) {
	j.inspections = map[*process.Process]inspection{}
	for range sleep.Ticks(ctx.Done(), janitorInterval) {
		j.sweep(ctx)
	}
}

func (j *janitor) sweep(ctx context.Context) {
	residents, pools, inspections := j.residents(), map[string]poolRecord{}, map[*process.Process]inspection{}
	for _, r := range residents {
		if _, known := pools[r.pool]; !known {
			pools[r.pool] = j.pool(ctx, r.pool)
		}
		if last, inspected := j.inspections[r.process]; inspected {
			inspections[r.process] = last
		}
	}
	j.inspections = inspections
	var stops sync.WaitGroup
	for _, r := range due(residents, pools, inspections) {
		p, id := r.process, r.workflowID()
		logger := j.log.With("worker", p.Worker(), "incarnation", p.Incarnation())
		run, closed := j.describe(ctx, id)
		if closed {
			logger.Warn("stopping process: its workflow is closed")
			stops.Go(func() { j.stop(ctx, p) })
			continue
		}
		if run == "" || inspections[p].run != run || !pools[r.pool].names(r.slot, r.incarnation) {
			var state api.WorkerState
			known := j.query(ctx, id, api.QueryState, &state)
			if known && isStale(state, p.Incarnation()) {
				logger.Warn("killing process: its worker has moved on to another incarnation", "newest", state.Incarnation)
				p.Kill("its worker has moved on to another incarnation")
				continue
			}
			if !known {
				run = ""
			}
		}
		inspections[p] = inspection{time.Now(), run}
	}
	stops.Wait()
}

func (j *janitor) residents() (all []resident) {
	for _, p := range j.processes.List() {
		if pool, slot, err := api.ParseWorkerName(p.Worker()); err == nil {
			all = append(all, resident{p, pool, slot, p.Incarnation()})
		}
	}
	return all
}

// due returns the processes whose workflow a sweep inspects: those that are new, those that their pool does not name,
// and janitorTurns others, first those whose last inspection is oldest.
func due(residents []resident, pools map[string]poolRecord, inspections map[*process.Process]inspection) []resident {
	var due, others []resident
	for _, r := range residents {
		if _, inspected := inspections[r.process]; !inspected || !pools[r.pool].names(r.slot, r.incarnation) {
			due = append(due, r)
		} else {
			others = append(others, r)
		}
	}
	slices.SortStableFunc(others, func(a, b resident) int {
		return inspections[a.process].at.Compare(inspections[b.process].at)
	})
	return append(due, others[:min(len(others), janitorTurns)]...)
}

// poolRecord is the newest incarnation of each slot whose workflow is open, by a pool's roster; nil of a pool that is
// closed or does not answer.
type poolRecord map[int]int64

// names reports whether an incarnation is the newest in the roster. The worker may already have a newer one; the pool
// soon learns of it, so the next sweep finds out.
func (r poolRecord) names(slot int, incarnation int64) bool {
	newest, known := r[slot]
	return known && newest == incarnation
}

func (j *janitor) pool(ctx context.Context, name string) poolRecord {
	id := api.PoolWorkflowID(name)
	var status api.PoolStatus
	if _, closed := j.describe(ctx, id); closed || !j.query(ctx, id, api.QueryStatus, &status) {
		return nil
	}
	record := poolRecord{}
	for _, worker := range status.Workers {
		if !worker.Gone {
			record[worker.Slot] = worker.Incarnation
		}
	}
	return record
}

// describe returns the newest run of a workflow and whether it is certainly not open. While Temporal does not answer,
// it returns "" and false.
func (j *janitor) describe(ctx context.Context, id string) (run string, closed bool) {
	ctx, cancel := context.WithTimeout(ctx, janitorTimeout)
	defer cancel()
	description, err := j.temporal.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return "", isNotFound(err)
	}
	info := description.GetWorkflowExecutionInfo()
	return info.GetExecution().GetRunId(), !sweeper.IsOpen(info.GetStatus())
}

// isStale reports whether the worker does not manage an incarnation whose process existed before state was queried. A
// worker records an incarnation before it asks any host to start it.
func isStale(state api.WorkerState, incarnation int64) bool {
	return incarnation != state.Incarnation && incarnation != state.Successor &&
		!slices.Contains(state.Draining, incarnation)
}

// query queries a workflow; false while it does not answer.
func (j *janitor) query(ctx context.Context, id, name string, answer any) bool {
	ctx, cancel := context.WithTimeout(ctx, janitorTimeout)
	defer cancel()
	value, err := j.temporal.QueryWorkflow(ctx, id, "", name)
	return err == nil && value.Get(answer) == nil
}

func (j *janitor) stop(ctx context.Context, p *process.Process) {
	ctx, cancel := context.WithTimeout(ctx, janitorStopTimeout)
	defer cancel()
	if _, err := p.Stop(ctx, janitorStopGrace); err != nil {
		j.log.Warn("stopping process failed", "worker", p.Worker(), "error", err)
	}
}
