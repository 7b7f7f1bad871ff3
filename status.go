package tempool

import (
	"context"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// concurrentQueries bounds how many workers are queried at the same time.
const concurrentQueries = 16

// Status returns the pool's roster: what the pool last heard of its workers. It queries none of them. For a pool that has ended, Ended is set
// and the rest is its last state.
func (p *Pool) Status(ctx context.Context) (s api.PoolStatus, err error) {
	closed, err := p.client.queryUnless(ctx, api.PoolWorkflowID(p.name), api.QueryStatus, enums.QUERY_REJECT_CONDITION_NOT_OPEN, &s)
	if closed {
		err = p.client.query(ctx, api.PoolWorkflowID(p.name), api.QueryStatus, &s)
		s = ended(s)
	}
	return s, p.asPoolNotFound(err)
}

// Running is Status for a running pool; a pool that has ended is CodePoolNotFound.
func (p *Pool) Running(ctx context.Context) (api.PoolStatus, error) {
	s, err := p.Status(ctx)
	if err == nil && s.Ended {
		err = api.Errorf(api.CodePoolNotFound, "pool %s has ended; ctl pool list shows the running pools", p.name)
	}
	return s, err
}

// Workers queries every worker of the pool for its state and metrics. A worker that does not answer has Error set and the roster's facts.
func (p *Pool) Workers(ctx context.Context) (api.PoolWorkers, error) {
	status, err := p.Status(ctx)
	if err != nil {
		return api.PoolWorkers{}, err
	}
	view := api.PoolWorkers{Pool: p.name, Ended: status.Ended, Size: status.Size, SpecVersion: status.SpecVersion, Rollout: status.Rollout, Workers: make([]api.Worker, len(status.Workers))}
	var group errgroup.Group
	group.SetLimit(concurrentQueries)
	for i, entry := range status.Workers {
		group.Go(func() error {
			view.Workers[i] = p.worker(ctx, entry)
			return nil
		})
	}
	_ = group.Wait() // a failure stands in its worker's Error
	for _, w := range view.Workers {
		if w.State.InService() {
			view.Ready++
		}
	}
	return view, nil
}

// worker queries one worker; what it cannot learn comes from the roster.
func (p *Pool) worker(ctx context.Context, entry api.RosterEntry) api.Worker {
	w := api.Worker{
		WorkerState: api.WorkerState{Worker: api.WorkerName(p.name, entry.Slot), State: entry.State, Incarnation: entry.Incarnation,
			Host: entry.Host, PID: entry.PID, Since: entry.Since, Reason: entry.Reason, SpecVersion: entry.SpecVersion},
		Metrics:  api.Metrics{ID: api.WorkerName(p.name, entry.Slot)},
		Endpoint: entry.Endpoint,
	}
	id := api.WorkerWorkflowID(p.name, entry.Slot)
	state, err := p.client.workerState(ctx, id)
	if err != nil {
		w.Error = err.Error()
		return w
	}
	w.WorkerState = state
	var metrics api.WorkerMetrics
	if err := p.client.query(ctx, id, api.QueryMetrics, &metrics); err != nil {
		w.Error = err.Error()
		return w
	}
	w.Metrics = metrics.Metrics
	p.client.addLiveSample(ctx, id, &w)
	return w
}

// addLiveSample replaces the sample of the last checkpoint by that of Watch's newest heartbeat, if Temporal has one.
func (c *Client) addLiveSample(ctx context.Context, workflowID string, w *api.Worker) {
	if w.StartedAt != nil {
		w.UptimeS = time.Since(*w.StartedAt).Seconds()
	}
	description, err := c.temporal.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return
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

// State queries one worker for its state.
func (p *Pool) State(ctx context.Context, slot int) (s api.WorkerState, err error) {
	return p.client.workerState(ctx, api.WorkerWorkflowID(p.name, slot))
}

// History queries one worker for its newest transitions, oldest first. FullHistory goes further back.
func (p *Pool) History(ctx context.Context, slot int) (h []lifecycle.Transition, err error) {
	err = p.client.query(ctx, api.WorkerWorkflowID(p.name, slot), api.QueryHistory, &h)
	return h, err
}
