package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
)

const (
	// sweepInterval is the time between two sweeps.
	sweepInterval = 5 * time.Second
	// sweepOverlap is the time before the newest known closing that a sweep reads again: visibility may show closings late
	// and out of order.
	sweepOverlap = 30 * time.Second
	// sweepAttempts is the number of attempts for one closed workflow.
	sweepAttempts = 60
)

// Sweeper does what one agent of a namespace does for all. It finds workflows that closed without a report, signals the
// pool of a closed worker and ends the workers of a closed pool; and it reports the calls that wait in Temporal.
type Sweeper struct {
	Temporal  client.Client
	Namespace string
	Logger    *slog.Logger
}

// Sweep searches for closed workflows every sweepInterval, until length has passed, and returns its progress. After an
// agent fell silent, the next attempt continues from the last heartbeat.
func (s *Sweeper) Sweep(ctx context.Context, progress api.SweepProgress,
	length time.Duration) (api.SweepProgress, error) {
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &progress); err != nil {
			return progress, err
		}
	}
	sweep := sweep{Sweeper: s, progress: progress, seen: map[string]time.Time{}, failures: map[string]int{}}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting.Go(func() { newWaitingCalls(s).run(ctx) })
	over := time.NewTimer(length)
	defer over.Stop()
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		sweep.alive(ctx)()
		if err := sweep.once(ctx); err != nil && ctx.Err() == nil {
			s.Logger.Warn("sweep for closed workflows failed; retrying", "error", err)
		}
		if err := sweep.continueLongRuns(ctx); err != nil && ctx.Err() == nil {
			s.Logger.Warn("sweep for old runs failed; retrying", "error", err)
		}
		if err := sweep.reportMissing(ctx); err != nil && ctx.Err() == nil {
			s.Logger.Warn("check for missing workers failed; retrying", "error", err)
		}
		select {
		case <-ticker.C:
		case <-over.C:
			return sweep.progress, nil
		case <-activity.GetWorkerStopChannel(ctx):
			return sweep.progress, errors.New("the agent is stopping; another agent continues the sweep")
		case <-ctx.Done():
			return sweep.progress, ctx.Err()
		}
	}
}

// sweep is one attempt of Sweep.
type sweep struct {
	*Sweeper
	progress api.SweepProgress
	seen     map[string]time.Time // handled runs, with the time they closed
	failures map[string]int       // failed attempts by run
	longRuns time.Time            // when continueLongRuns searched
	rosters  []string             // the pools whose rosters are still to be checked
	listed   time.Time            // when these were listed
}

// alive returns what heartbeats. Every heartbeat has the progress: one without would take it from the next attempt.
func (s *sweep) alive(ctx context.Context) func() {
	return func() { activity.RecordHeartbeat(ctx, s.progress) }
}

// once handles the workflows that have closed since the last sweep. A failed one is retried by the next sweeps,
// sweepAttempts times in all.
func (s *sweep) once(ctx context.Context) error {
	query := fmt.Sprintf("WorkflowType IN ('%s', '%s', '%s') AND CloseTime >= '%s' AND ExecutionStatus IN "+
		"('Terminated', 'TimedOut', 'Failed', 'Canceled')",
		api.WorkflowWorker, api.WorkflowPool, api.WorkflowHost,
		s.progress.After.Add(-sweepOverlap).UTC().Format(time.RFC3339Nano))
	newest := s.progress.After
	var failure error
	err := s.each(ctx, query, func(closed *workflow.WorkflowExecutionInfo) error {
		s.alive(ctx)()
		run, at := closed.GetExecution().GetRunId(), closed.GetCloseTime().AsTime()
		if _, done := s.seen[run]; done {
			return nil
		}
		if err := s.closed(ctx, closed); err != nil {
			if s.failures[run]++; s.failures[run] < sweepAttempts {
				failure = fmt.Errorf("%s: %w", closed.GetExecution().GetWorkflowId(), err)
				return ctx.Err()
			}
			s.Logger.Error("giving up on a closed workflow", "workflow", closed.GetExecution().GetWorkflowId(), "error", err)
		}
		s.seen[run] = at
		delete(s.failures, run)
		if at.After(newest) {
			newest = at
		}
		return nil
	})
	if err = errors.Join(failure, err); err != nil {
		return err
	}
	// a server's clock was ahead: what closes once it is right must not count as seen
	if now := time.Now(); newest.After(now) {
		newest = now
	}
	s.progress.After = newest
	maps.DeleteFunc(s.seen, func(_ string, at time.Time) bool { return at.Before(newest.Add(-sweepOverlap)) })
	return nil
}

// closed handles one closed workflow, unless a newer run with its ID does.
func (s *sweep) closed(ctx context.Context, info *workflow.WorkflowExecutionInfo) (err error) {
	id := info.GetExecution().GetWorkflowId()
	description, err := s.describe(ctx, id)
	if err != nil || description == nil {
		return err
	}
	newest := description.GetWorkflowExecutionInfo()
	open, status := IsOpen(newest.GetStatus()), statusWord(newest.GetStatus())
	if open { // it was reset, perhaps
		defer func() { err = errors.Join(err, s.restoreTimeouts(ctx, description)) }()
	}
	pool, slot, isWorker := workerOf(id)
	switch {
	case info.GetType().GetName() == api.WorkflowHost:
		return nil
	case isWorker && open:
		return nil
	case isWorker:
		s.Logger.Warn("worker workflow closed without a report", "worker", api.WorkerName(pool, slot), "status", status)
		return s.signal(ctx, api.PoolWorkflowID(pool), api.SignalWorkerClosed,
			api.WorkerClosed{Slot: slot, RunID: newest.GetFirstRunId(), Status: status})
	}
	workers, err := s.openWorkers(ctx, id, s.alive(ctx))
	if err != nil || len(workers) == 0 {
		return err
	}
	reason := fmt.Sprintf("the workflow of pool %s was %s", strings.TrimPrefix(id, api.PoolWorkflowID("")), status)
	if open { // it was started again or reset, so it may lack workers that an earlier run started
		if workers, err = s.unknownWorkers(ctx, id, workers); err != nil {
			return err
		}
		reason = "its pool was started again or reset, and does not have this worker"
	}
	for _, worker := range workers {
		s.alive(ctx)()
		if err := s.signal(ctx, worker, api.SignalEnd, api.Control{Reason: reason, By: "sweeper"}); err != nil {
			return err
		}
	}
	return nil
}

// ClosedWorkers names the workflows of workers of which a run has closed since a time and has not continued as new.
// Visibility may show one late.
func (s *Sweeper) ClosedWorkers(ctx context.Context, since time.Time) (map[string]bool, error) {
	query := fmt.Sprintf("WorkflowType = '%s' AND CloseTime >= '%s' AND ExecutionStatus IN ('Completed', 'Terminated', "+
		"'TimedOut', 'Failed', 'Canceled')",
		api.WorkflowWorker, since.UTC().Format(time.RFC3339Nano))
	ids := map[string]bool{}
	err := s.each(ctx, query, func(closed *workflow.WorkflowExecutionInfo) error {
		ids[closed.GetExecution().GetWorkflowId()] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list closed workflows of workers: %w", err)
	}
	return ids, nil
}

// openWorkers are the IDs of the open workflows of a pool's workers. It calls alive for each.
func (s *Sweeper) openWorkers(ctx context.Context, pool string, alive func()) (ids []string, err error) {
	query := fmt.Sprintf("WorkflowType = '%s' AND WorkflowId STARTS_WITH '%s/' AND ExecutionStatus = 'Running'",
		api.WorkflowWorker, pool)
	err = s.each(ctx, query, func(worker *workflow.WorkflowExecutionInfo) error {
		alive()
		ids = append(ids, worker.GetExecution().GetWorkflowId())
		return nil
	})
	return ids, err
}

// unknownWorkers are those of the given workers that are not on the roster of their pool. A pool has a worker on its
// roster before it starts the workflow.
func (s *Sweeper) unknownWorkers(ctx context.Context, pool string, ids []string) ([]string, error) {
	status, err := s.poolStatus(ctx, pool)
	return slices.DeleteFunc(ids, func(id string) bool {
		_, slot, _ := workerOf(id)
		return slices.ContainsFunc(status.Workers, func(e api.RosterEntry) bool { return e.Slot == slot })
	}), err
}

// poolStatus queries the workflow of a pool.
func (s *Sweeper) poolStatus(ctx context.Context, id string) (status api.PoolStatus, err error) {
	answer, err := s.Temporal.QueryWorkflow(ctx, id, "", api.QueryStatus)
	if err == nil {
		err = answer.Get(&status)
	}
	if err != nil {
		return status, fmt.Errorf("query the workers of %s: %w", id, err)
	}
	return status, nil
}

// newest describes the newest run of a workflow; nil is one that Temporal no longer has.
func (s *Sweeper) newest(ctx context.Context, id string) (*workflow.WorkflowExecutionInfo, error) {
	description, err := s.describe(ctx, id)
	return description.GetWorkflowExecutionInfo(), err
}

func (s *Sweeper) describe(ctx context.Context, id string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	description, err := s.Temporal.DescribeWorkflowExecution(ctx, id, "")
	return description, ignoreNotFound(err)
}

// signal signals a workflow; one that has ended is not an error.
func (s *Sweeper) signal(ctx context.Context, id, name string, argument any) error {
	return ignoreNotFound(s.Temporal.SignalWorkflow(ctx, id, "", name, argument))
}

// each calls found with every workflow that the visibility query names.
func (s *Sweeper) each(ctx context.Context, query string, found func(*workflow.WorkflowExecutionInfo) error) error {
	var page []byte
	for {
		answer, err := s.Temporal.ListWorkflow(ctx,
			&workflowservice.ListWorkflowExecutionsRequest{Namespace: s.Namespace, Query: query, NextPageToken: page})
		if err != nil {
			return err
		}
		for _, execution := range answer.GetExecutions() {
			if err := found(execution); err != nil {
				return err
			}
		}
		if page = answer.GetNextPageToken(); len(page) == 0 {
			return nil
		}
	}
}

// workerOf reads the ID of a worker's workflow.
func workerOf(id string) (pool string, slot int, ok bool) {
	pool, slot, err := api.ParseWorkerName(strings.TrimPrefix(id, api.PoolWorkflowID("")))
	return pool, slot, err == nil
}

// IsOpen reports whether a workflow is open whose newest run has that status: one that an operator has paused goes on
// later.
func IsOpen(status enums.WorkflowExecutionStatus) bool {
	switch status {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING, enums.WORKFLOW_EXECUTION_STATUS_PAUSED,
		enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		return true
	}
	return false
}

// statusWord is what became of a workflow by its newest run; that of one that Temporal no longer has is unspecified.
func statusWord(status enums.WorkflowExecutionStatus) string {
	switch status {
	case enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED:
		return "deleted"
	case enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return "timed out"
	case enums.WORKFLOW_EXECUTION_STATUS_CANCELED:
		return "cancelled"
	}
	return strings.ToLower(status.String())
}
