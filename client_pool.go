package tempool

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// Pool is one pool as its clients see it. It is safe for concurrent use.
type Pool struct {
	client *Client
	name   string
	call   CallOptions
}

// Name is the pool's name.
func (p *Pool) Name() string { return p.name }

// update sends an update to a workflow and waits for its result.
func (c *Client) update(ctx context.Context, workflowID, name, updateID string, argument, result any, what string) error {
	leave, err := c.updates.enter(ctx, workflowID)
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "%s: too many requests of this client are on their way: %w", what, err)
	}
	defer leave()
	handle, err := c.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: workflowID, UpdateName: name, UpdateID: updateID, Args: []any{argument},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, result)
	}
	return c.fromTemporal(err, what)
}

func (p *Pool) update(ctx context.Context, name string, argument, result any) error {
	return p.asPoolNotFound(p.client.update(ctx, api.PoolWorkflowID(p.name), name, uuid.NewString(), argument, result, name+" pool "+p.name))
}

// asPoolNotFound says pool_not_found where the client only knew that some workflow was not found.
func (p *Pool) asPoolNotFound(err error) error {
	if api.CodeOf(err) == api.CodeWorkerNotFound && errors.Is(err, api.ErrWorkerNotFound) {
		var coded *api.Error
		if errors.As(err, &coded) && coded.Err != nil && notFound(coded.Err) {
			return api.Errorf(api.CodePoolNotFound, "no pool %s is running; ctl pool list names those that are: %w", p.name, coded.Err)
		}
	}
	return err
}

// Scale sets the number of workers.
func (p *Pool) Scale(ctx context.Context, size int) (r api.ScaleResult, err error) {
	err = p.update(ctx, api.UpdateScale, api.ScaleRequest{Size: size}, &r)
	return r, err
}

// Apply gives the pool a new spec, which is rolled out at most rotation.max_unavailable workers at a time.
func (p *Pool) Apply(ctx context.Context, s spec.Spec) (r api.ApplyResult, err error) {
	err = p.update(ctx, api.UpdateApply, api.ApplyRequest{Spec: s}, &r)
	return r, err
}

// Restart restarts one worker, or all of them rolling when worker is nil. It revives workers that rest.
func (p *Pool) Restart(ctx context.Context, request api.RestartRequest) (r api.RestartResult, err error) {
	err = p.update(ctx, api.UpdateRestart, request, &r)
	return r, err
}

// Stop asks the pool to end; Wait waits for it.
func (p *Pool) Stop(ctx context.Context, reason string) (r api.PoolStopResult, err error) {
	err = p.update(ctx, api.UpdateStop, api.Control{Reason: reason}, &r)
	return r, err
}

// Wait waits until the pool has ended, whoever ended it.
func (p *Pool) Wait(ctx context.Context) error {
	err := p.client.temporal.GetWorkflow(ctx, api.PoolWorkflowID(p.name), "").Get(ctx, nil)
	var ended *temporal.WorkflowExecutionError
	if errors.As(err, &ended) { // terminated or cancelled by hand: ended all the same
		return nil
	}
	return p.asPoolNotFound(p.client.fromTemporal(err, "wait for pool "+p.name))
}

// Signal sends drain, stop, suspend or resume to one worker.
func (p *Pool) Signal(ctx context.Context, slot int, signal string, control api.Control) error {
	return p.client.fromTemporal(
		p.client.temporal.SignalWorkflow(ctx, api.WorkerWorkflowID(p.name, slot), "", signal, control), signal+" "+api.WorkerName(p.name, slot))
}

// Status is what the pool last heard of its workers; it asks none of them. A pool that has ended tells how it stood then, and is Ended.
func (p *Pool) Status(ctx context.Context) (s api.PoolStatus, err error) {
	ended, err := p.client.queryIf(ctx, api.PoolWorkflowID(p.name), api.QueryStatus, enums.QUERY_REJECT_CONDITION_NOT_OPEN, &s)
	if ended {
		err = p.client.query(ctx, api.PoolWorkflowID(p.name), api.QueryStatus, &s)
		s.Ended = true
	}
	return s, p.asPoolNotFound(err)
}

// Running is Status, and CodePoolNotFound of a pool that has ended: for whoever wants something of its workers.
func (p *Pool) Running(ctx context.Context) (api.PoolStatus, error) {
	s, err := p.Status(ctx)
	if err == nil && s.Ended {
		err = api.Errorf(api.CodePoolNotFound, "pool %s has ended; ctl pool list names those that run", p.name)
	}
	return s, err
}

// concurrentQueries bounds how many workers are asked at one time.
const concurrentQueries = 16

// Workers asks every worker of the pool for its state and metrics.
func (p *Pool) Workers(ctx context.Context) (api.PoolWorkers, error) {
	status, err := p.Status(ctx)
	if err != nil {
		return api.PoolWorkers{}, err
	}
	view := api.PoolWorkers{Pool: p.name, Ended: status.Ended, Size: status.Size, SpecVersion: status.SpecVersion, Rollout: status.Rollout, Workers: make([]api.Worker, len(status.Workers))}
	var group sync.WaitGroup
	room := make(chan struct{}, concurrentQueries)
	for i, entry := range status.Workers {
		room <- struct{}{}
		group.Go(func() {
			defer func() { <-room }()
			view.Workers[i] = p.worker(ctx, entry)
		})
	}
	group.Wait()
	for _, w := range view.Workers {
		if w.State == lifecycle.Ready || w.State == lifecycle.Busy {
			view.Ready++
		}
	}
	return view, nil
}

// worker asks one worker; what it cannot learn it takes from the roster, and says why.
func (p *Pool) worker(ctx context.Context, entry api.RosterEntry) api.Worker {
	w := api.Worker{
		WorkerState: api.WorkerState{Worker: api.WorkerName(p.name, entry.Slot), State: entry.State, Incarnation: entry.Incarnation,
			Host: entry.Host, PID: entry.PID, Since: entry.Since, Reason: entry.Reason, SpecVersion: entry.SpecVersion},
		Metrics:  api.Metrics{ID: api.WorkerName(p.name, entry.Slot)},
		Endpoint: entry.Endpoint,
	}
	id := api.WorkerWorkflowID(p.name, entry.Slot)
	if err := p.client.query(ctx, id, api.QueryState, &w.WorkerState); err != nil {
		w.Error = err.Error()
		return w
	}
	var metrics api.WorkerMetrics
	if err := p.client.query(ctx, id, api.QueryMetrics, &metrics); err != nil {
		w.Error = err.Error()
		return w
	}
	w.Metrics = metrics.Metrics
	p.client.addLiveSample(ctx, id, &w)
	return w
}

// addLiveSample replaces the sample of the last checkpoint by the one in the newest heartbeat of Watch.
func (c *Client) addLiveSample(ctx context.Context, workflowID string, w *api.Worker) {
	if w.StartedAt != nil {
		w.UptimeS = time.Since(*w.StartedAt).Seconds()
	}
	description, err := c.temporal.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return // the sample of the last checkpoint stands
	}
	for _, activity := range description.GetPendingActivities() {
		var beat api.WatchHeartbeat
		if activity.GetActivityType().GetName() != api.ActivityWatch || activity.GetHeartbeatDetails() == nil ||
			converter.GetDefaultDataConverter().FromPayloads(activity.GetHeartbeatDetails(), &beat) != nil || beat.Sample == nil {
			continue
		}
		w.CurrentMemoryBytes, w.CPUPercent = beat.Sample.RSSBytes, beat.Sample.CPUPercent
		w.OpenFiles, w.Threads = beat.Sample.OpenFiles, beat.Sample.Threads
		w.PeakMemoryBytes = max(w.PeakMemoryBytes, beat.Sample.RSSBytes)
		w.MemoryLimitBytes, w.CPULimitCores = beat.MemoryLimitBytes, beat.CPULimitCores
		if beat.Limits != nil {
			w.Limits = beat.Limits
		}
		if beat.Assessment != nil {
			w.Grade, w.Score, w.Warnings = beat.Assessment.Grade, &beat.Assessment.Score, beat.Assessment.Warnings
		}
	}
}

// State asks one worker for its state.
func (p *Pool) State(ctx context.Context, slot int) (s api.WorkerState, err error) {
	err = p.client.query(ctx, api.WorkerWorkflowID(p.name, slot), api.QueryState, &s)
	return s, err
}

// History is the newest transitions of one worker, oldest first.
func (p *Pool) History(ctx context.Context, slot int) (h []lifecycle.Transition, err error) {
	err = p.client.query(ctx, api.WorkerWorkflowID(p.name, slot), api.QueryHistory, &h)
	return h, err
}
