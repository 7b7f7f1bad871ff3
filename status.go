package tempool

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/lifecycle"
)

// Status returns the pool's roster: the last report of each worker. It queries none of them. For a pool that has ended,
// Ended is set and the rest is its last state.
func (p *Pool) Status(ctx context.Context) (s api.PoolStatus, err error) {
	closed, err := p.client.queryUnless(ctx, api.PoolWorkflowID(p.name), api.QueryStatus,
		enums.QUERY_REJECT_CONDITION_NOT_OPEN, &s)
	if closed {
		err = p.client.query(ctx, api.PoolWorkflowID(p.name), api.QueryStatus, &s)
		s = ended(s)
	}
	return s, p.asPoolNotFound(err)
}

// Running is Status for a running pool; a pool that has ended is CodePoolNotFound.
func (p *Pool) Running(ctx context.Context) (s api.PoolStatus, err error) {
	closed, err := p.client.queryUnless(ctx, api.PoolWorkflowID(p.name), api.QueryStatus,
		enums.QUERY_REJECT_CONDITION_NOT_OPEN, &s)
	if closed { // its state, which an agent would have to replay, is not asked for
		err = api.Errorf(api.CodePoolNotFound, "pool %s has ended; tempool pool list shows the running pools", p.name)
	}
	return s, p.asPoolNotFound(err)
}

// Roster is the last report of each worker to its pool, with the figures of their hosts' last heartbeats: requests,
// memory and the lease of the running processes. It costs one query, and one description for each host, however many
// workers there are. Workers knows more.
func (p *Pool) Roster(ctx context.Context) (api.PoolWorkers, error) {
	status, err := p.Status(ctx)
	if err != nil {
		return api.PoolWorkers{}, err
	}
	return RosterOf(status, p.client.reports(ctx, status)), nil
}

// RosterOf joins a pool's status with what hosts last reported of its workers' processes, of its calls and its clients.
func RosterOf(status api.PoolStatus, reports Reports) api.PoolWorkers {
	view := status.View()
	view.LastMinute = reports.lastMinute(status)
	for _, host := range reports.hosts {
		view.MCPSessions += host.MCPSessions[status.Pool]
		view.Waiting += host.Waiting[status.Pool]
	}
	for i := range view.Workers {
		w := &view.Workers[i]
		if v, known := reports.Processes[w.Worker]; known && v.Incarnation == w.Incarnation && w.State.Live() {
			addUsage(&w.Metrics, v.Usage, api.Usage{})
			w.UptimeS = float64(v.UptimeMS) / 1000
			if w.Lease = v.Lease; w.State == lifecycle.Ready && v.Lease != nil {
				w.State = lifecycle.Busy
			}
			addReport(w, v)
		}
	}
	view.CountReady()
	return view
}

const (
	maxAsked = 64
	// AskPatience is how long views wait for the answers of workers.
	AskPatience = 2 * time.Second
)

// NoAnswer is the Error of a worker that was asked for its state for so long, and failed with err; "" for nil, and for
// a worker that has not started.
func NoAnswer(err error, limit time.Duration) string {
	switch {
	case err == nil, api.CodeOf(err) == api.CodeWorkerNotFound:
		return ""
	case isTimeout(err), errors.Is(err, context.Canceled):
		return "not within " + limit.String()
	}
	return err.Error()
}

// AskState asks one worker for its state.
type AskState func(ctx context.Context, pool string, slot int) (api.WorkerState, error)

// AskWorkers replaces the state of each worker that lives or waits, which it last reported to its pool, by what state
// returns for it: a lease that nobody has used yet, and the newest of many failures, are known to the worker alone. It
// asks up to 64 workers, of more only those out of service, and no longer than two seconds; the others keep what the
// roster says, with Error set if they were asked.
func AskWorkers(ctx context.Context, views []api.PoolWorkers, state AskState) {
	askWorkers(ctx, views, maxAsked, state)
}

// AskOutOfService is AskWorkers for views of whole pools: it asks only workers out of service.
func AskOutOfService(ctx context.Context, views []api.PoolWorkers, state AskState) {
	askWorkers(ctx, views, 0, state)
}

// roundRobin orders workers so that each pool has one among the first, then a second one, and so on.
func roundRobin(workers []*api.Worker) {
	ranks, ofPool := map[*api.Worker]int{}, map[string]int{}
	for _, w := range workers {
		pool, _, _ := strings.Cut(w.Worker, "/")
		ranks[w] = ofPool[pool]
		ofPool[pool]++
	}
	slices.SortStableFunc(workers, func(a, b *api.Worker) int { return cmp.Compare(ranks[a], ranks[b]) })
}

// askWorkers asks up to most workers, of more up to maxAsked out of service.
func askWorkers(ctx context.Context, views []api.PoolWorkers, most int, state AskState) {
	ctx, cancel := context.WithTimeout(ctx, AskPatience)
	defer cancel()
	var asked []*api.Worker
	for _, view := range views {
		for i := range view.Workers {
			w := &view.Workers[i]
			if (w.State.Live() || w.State == lifecycle.Pending) && !view.Ended {
				asked = append(asked, w)
			}
		}
	}
	if len(asked) > most {
		asked = slices.DeleteFunc(asked, func(w *api.Worker) bool { return w.State.InService() })
		roundRobin(asked) // no large pool leaves nothing for the others
		asked = asked[:min(len(asked), maxAsked)]
	}
	sleep.Each(len(asked), concurrentQueries, func(i int) {
		pool, slot, err := api.ParseWorkerName(asked[i].Worker)
		if err != nil {
			return
		}
		switch s, err := state(ctx, pool, slot); {
		case err == nil && (!s.Ended || asked[i].State.InService()): // else its next workflow starts
			asked[i].Adopt(s)
		case ctx.Err() != nil: // also if it could not be asked before
			asked[i].Error = NoAnswer(ctx.Err(), AskPatience)
		default:
			asked[i].Error = cmp.Or(NoAnswer(err, AskPatience), asked[i].Error)
		}
	})
	for i := range views {
		views[i].CountReady()
	}
}

// Workers queries every worker of the pool for its state and metrics. A worker that does not answer has Error set and
// the roster's facts.
func (p *Pool) Workers(ctx context.Context) (api.PoolWorkers, error) {
	status, err := p.Status(ctx)
	if err != nil {
		return api.PoolWorkers{}, err
	}
	reports := p.client.reports(ctx, status)
	view := RosterOf(status, reports)
	sleep.Each(len(view.Workers), concurrentQueries, func(i int) {
		w := &view.Workers[i]
		if err := p.ask(ctx, w, reports.Processes[w.Worker]); err != nil {
			w.Error = err.Error()
		}
	})
	view.CountReady()
	return view, nil
}

// ask replaces what the roster says of a worker by its own answers, and by what its host has reported since.
func (p *Pool) ask(ctx context.Context, w *api.Worker, report api.ProcessReport) error {
	id := api.WorkerWorkflowID(p.name, w.Entry.Slot)
	state, err := p.client.workerState(ctx, id)
	if err != nil {
		return err
	}
	var metrics api.WorkerMetrics
	if err := p.client.query(ctx, id, api.QueryMetrics, &metrics); err != nil {
		return err
	}
	*w = api.Worker{WorkerState: state, Metrics: metrics.Metrics, Endpoint: w.Endpoint, Entry: w.Entry}
	if report.Incarnation == w.Incarnation {
		addUsage(&w.Metrics, report.Usage, metrics.Counted)
	}
	addReport(w, report)
	return nil
}

// addUsage adds what a process has served since its worker counted it.
func addUsage(m *api.Metrics, served, counted api.Usage) {
	m.RequestsServed += max(0, served.Requests-counted.Requests)
	m.RequestsFailed += max(0, served.Failed-counted.Failed)
	m.TotalCallTimeMS += max(0, served.TotalMS-counted.TotalMS)
	if m.RequestsServed > 0 {
		m.AvgCallTimeMS = float64(m.TotalCallTimeMS) / float64(m.RequestsServed)
	}
}

// addReport replaces the sample of the last checkpoint by what the host has reported since.
func addReport(w *api.Worker, v api.ProcessReport) {
	if w.StartedAt != nil {
		w.UptimeS = time.Since(*w.StartedAt).Seconds()
	}
	if v.Incarnation != w.Incarnation {
		return
	}
	w.InFlight, w.Process, w.Key, w.MCPClient = v.InFlight, v.Number, v.Key, v.MCPClient
	if v.Sample == nil {
		return
	}
	w.CurrentMemoryBytes, w.MemorySource, w.CPUPercent = v.Sample.MemoryBytes, v.Sample.MemorySource, v.Sample.CPUPercent
	w.OpenFiles, w.Threads, w.Network = v.Sample.OpenFiles, v.Sample.Threads, v.Sample.Network
	w.PeakMemoryBytes = max(w.PeakMemoryBytes, v.Sample.MemoryBytes)
	w.MemoryLimitBytes, w.CPULimitCores = v.MemoryLimitBytes, v.CPULimitCores
	if v.Assessment != nil {
		w.Grade, w.Score = v.Assessment.Grade, &v.Assessment.Score
		w.Assess(*v.Assessment)
	}
}

// State queries one worker for its state.
func (p *Pool) State(ctx context.Context, slot int) (s api.WorkerState, err error) {
	return p.client.workerState(ctx, api.WorkerWorkflowID(p.name, slot))
}

// WorkerSpec queries one worker for the spec that it has. While a rollout is under way, that may be an older one than
// the pool's.
func (p *Pool) WorkerSpec(ctx context.Context, slot int) (s api.WorkerSpec, err error) {
	err = p.client.query(ctx, api.WorkerWorkflowID(p.name, slot), api.QuerySpec, &s)
	return s, err
}

// History queries one worker for its newest transitions, oldest first.
func (p *Pool) History(ctx context.Context, slot int) (h []lifecycle.Transition, err error) {
	err = p.client.query(ctx, api.WorkerWorkflowID(p.name, slot), api.QueryHistory, &h)
	return h, err
}

// Temporal answers queries of a workflow that has ended with its last state, in which a worker may be ready. No
// workflow manages the process of such a worker any more, so it is shown as failed.

// workerState queries a worker. If its workflow has ended, Ended is set, and the rest is its last state, except that it
// has no process in service and no lease.
func (c *Client) workerState(ctx context.Context, workflowID string) (s api.WorkerState, err error) {
	ended, err := c.queryUnless(ctx, workflowID, api.QueryState, enums.QUERY_REJECT_CONDITION_NOT_OPEN, &s)
	if !ended {
		return s, err
	}
	if err = c.query(ctx, workflowID, api.QueryState, &s); err != nil {
		return s, err
	}
	s.Ended, s.Lease = true, nil
	if !s.State.Outcome() {
		s.Reason = "the workflow of this worker has ended while it was " + string(s.State)
		s.State, s.Health = lifecycle.Failed, lifecycle.Unknown
	}
	return s, nil
}

// ended is the status of a pool that has ended: no worker of its roster serves.
func ended(s api.PoolStatus) api.PoolStatus {
	s.Ended, s.Ready = true, 0
	for i := range s.Workers {
		if w := &s.Workers[i]; !w.State.Outcome() {
			w.Reason = "the pool has ended while this worker was " + string(w.State)
			w.State = lifecycle.Stopped
		}
	}
	return s
}
