// Package sweeper does what one agent of a namespace does for all: it finds workflows that have ended without a report,
// notifies workers that the agent of their host has ended, and reports the calls that wait in Temporal.
package sweeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
)

const (
	// sweepInterval is the time between two sweeps, which check poolsPerSweep pools at most; more pools take turns.
	sweepInterval = 5 * time.Second
	poolsPerSweep = 8
	// closedOverlap is the time before the newest known closing that a sweep reads again: visibility may show closings
	// late and out of order.
	closedOverlap = 30 * time.Second
	// checkInterval is the time between two checks of each pool, whether or not a workflow of it is known to have closed:
	// no list has one that was deleted.
	checkInterval = time.Minute
	// checkTimeout bounds one check.
	checkTimeout = 10 * time.Second
	// longRunInterval is the time between two searches for runs that should have continued as new.
	longRunInterval = time.Hour
	// longRun is the age of such a run. Pools and workers continue as new within a day if anything wakes them; a worker
	// that rests, or a pool in which nothing happens, sleeps until something does.
	longRun = 25 * time.Hour
)

// Sweeper implements the activities that any agent of a namespace can run.
type Sweeper struct {
	Temporal  client.Client
	Namespace string
	Logger    *slog.Logger
	// Status queries a running pool, and Pools lists them.
	Status func(ctx context.Context, pool string) (api.PoolStatus, error)
	Pools  func(ctx context.Context) ([]string, error)
	// PoolDown is called for each pool that is found with workers of which none serves, by a sweep or after the end of an
	// epoch; nil for nothing. No other agent may know of it.
	PoolDown func(pool string)
}

// Sweep compares pools with the workflows that are open, until length has passed.
func (s *Sweeper) Sweep(ctx context.Context, length time.Duration) error {
	sweep := newSweep(s)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting.Go(func() { newWaitingCalls(s).run(ctx) })
	over := time.After(length)
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		if err := sweep.once(ctx); err != nil && ctx.Err() == nil {
			s.Logger.Warn("sweep failed; retrying", "error", err)
		}
		select {
		case <-ticker.C:
		case <-over:
			return nil
		case <-activity.GetWorkerStopChannel(ctx):
			return errStopping
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errStopping fails an activity of an agent that stops: another one continues it. The SDK logs other errors as such.
var errStopping = temporal.NewApplicationErrorWithOptions("the agent is stopping; another one continues", "",
	temporal.ApplicationErrorOptions{Category: temporal.ApplicationErrorCategoryBenign})

// sweep is one attempt of Sweep. It begins with a check of all pools.
type sweep struct {
	*Sweeper
	due      []string             // the pools to check
	listed   time.Time            // when all pools became due
	since    time.Time            // the newest known closing
	seen     map[string]time.Time // the runs whose closing is known, with its time
	longRuns time.Time            // when long runs were searched
}

func newSweep(s *Sweeper) *sweep {
	return &sweep{Sweeper: s, since: time.Now(), seen: map[string]time.Time{}}
}

// once checks the pools that are due. An error for one pool does not stop the others; the pool is checked again with
// all pools.
func (s *sweep) once(ctx context.Context) error {
	failure := errors.Join(s.listAll(ctx), s.listClosed(ctx), s.continueLongRuns(ctx))
	for range min(len(s.due), poolsPerSweep) {
		pool := s.due[0]
		s.due = s.due[1:]
		if err := s.check(ctx, pool); err != nil {
			failure = errors.Join(failure, fmt.Errorf("pool %s: %w", pool, err))
		}
	}
	return failure
}

// listAll makes the pools of all open workflows due, once in checkInterval.
func (s *sweep) listAll(ctx context.Context) error {
	now := time.Now()
	if now.Sub(s.listed) < checkInterval || len(s.due) > 0 {
		return nil
	}
	open, err := s.ids(ctx, "WorkflowType IN ('%s', '%s') AND ExecutionStatus = 'Running'", api.WorkflowWorker,
		api.WorkflowPool)
	if err != nil {
		return fmt.Errorf("list the open workflows: %w", err)
	}
	for _, id := range open {
		if pool := poolOf(id); pool != "" && !slices.Contains(s.due, pool) {
			s.due = append(s.due, pool)
		}
	}
	s.listed = now
	return nil
}

// listClosed makes the pools due of which a workflow was ended from outside, before all others.
func (s *sweep) listClosed(ctx context.Context) error {
	query := fmt.Sprintf("WorkflowType IN ('%s', '%s') AND CloseTime >= '%s' AND ExecutionStatus IN "+
		"('Terminated', 'TimedOut', 'Failed', 'Canceled')", api.WorkflowWorker, api.WorkflowPool,
		s.since.Add(-closedOverlap).UTC().Format(time.RFC3339Nano))
	err := s.each(ctx, query, func(closed *workflow.WorkflowExecutionInfo) error {
		run, at := closed.GetExecution().GetRunId(), closed.GetCloseTime().AsTime()
		if _, known := s.seen[run]; known {
			return nil
		}
		s.seen[run] = at
		if pool := poolOf(closed.GetExecution().GetWorkflowId()); pool != "" {
			s.due = append([]string{pool}, slices.DeleteFunc(s.due, func(p string) bool { return p == pool })...)
		}
		// a server's clock may be ahead: what closes once it is right must not count as known
		if at.After(s.since) && at.Before(time.Now()) {
			s.since = at
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the closed workflows: %w", err)
	}
	maps.DeleteFunc(s.seen, func(_ string, at time.Time) bool { return at.Before(s.since.Add(-closedOverlap)) })
	return nil
}

// check ends the workers of a pool that is not open, and those that an open one does not have; and it reports to an
// open pool which of the workers on its roster have no open workflow. A pool has a worker on its roster before it
// starts the workflow.
func (s *Sweeper) check(ctx context.Context, pool string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	id := api.PoolWorkflowID(pool)
	open, err := s.openWorkers(ctx, id)
	if err != nil {
		return err
	}
	newest, err := s.newest(ctx, id)
	if err != nil {
		return err
	}
	switch status := newest.GetStatus(); {
	case status == enums.WORKFLOW_EXECUTION_STATUS_PAUSED: // it answers later
		return nil
	case !IsOpen(status):
		return s.end(ctx, open, fmt.Sprintf("the workflow of pool %s was %s", pool, statusWord(status)))
	}
	status, err := s.Status(ctx, pool)
	if err != nil {
		return err
	}
	s.reportDown(status)
	unknown := slices.DeleteFunc(slices.Clone(open), func(id string) bool {
		_, slot, _ := workerOf(id)
		return slices.ContainsFunc(status.Workers, func(e api.RosterEntry) bool { return e.Slot == slot })
	})
	if err := s.end(ctx, unknown, "its pool does not have this worker"); err != nil {
		return err
	}
	for _, w := range status.Workers {
		worker := api.WorkerWorkflowID(pool, w.Slot)
		if w.Gone || w.RunID == "" || slices.Contains(open, worker) {
			continue
		}
		newest, err := s.newest(ctx, worker) // visibility may not list one that has just started
		if err != nil {
			return err
		}
		if newest != nil && (IsOpen(newest.GetStatus()) || newest.GetFirstRunId() != w.RunID) {
			continue
		}
		word := statusWord(newest.GetStatus())
		s.Logger.Warn("worker workflow closed without a report", "worker", api.WorkerName(pool, w.Slot), "status", word)
		if err := s.signal(ctx, id, api.SignalWorkerClosed,
			api.WorkerClosed{Slot: w.Slot, RunID: w.RunID, Status: word}); err != nil {
			return err
		}
	}
	return nil
}

// end ends workers.
func (s *Sweeper) end(ctx context.Context, ids []string, reason string) error {
	for _, id := range ids {
		heartbeat(ctx)
		s.Logger.Warn("ending a worker", "workflow", id, "reason", reason)
		if err := s.signal(ctx, id, api.SignalEnd, api.Control{Reason: reason, By: "sweeper"}); err != nil {
			return err
		}
	}
	return nil
}

// continueLongRuns has old runs continue as new, once in longRunInterval.
func (s *sweep) continueLongRuns(ctx context.Context) error {
	now := time.Now()
	if now.Sub(s.longRuns) < longRunInterval {
		return nil
	}
	n, err := s.ContinueRunsBefore(ctx, now.Add(-longRun))
	if err != nil {
		return fmt.Errorf("continue old runs as new: %w", err)
	}
	s.longRuns = now
	if n > 0 {
		s.Logger.Info("asked old runs of idle workflows to continue as new", "runs", n)
	}
	return nil
}

// ContinueRunsBefore has the pools and workers whose runs started before a time continue as new, and returns their
// number. A run then ends within about a day, and with it the need for code that only its history uses.
func (s *Sweeper) ContinueRunsBefore(ctx context.Context, started time.Time) (int, error) {
	query := fmt.Sprintf("WorkflowType IN ('%s', '%s') AND StartTime < '%s' AND ExecutionStatus = 'Running'",
		api.WorkflowWorker, api.WorkflowPool, started.UTC().Format(time.RFC3339Nano))
	n := 0
	err := s.each(ctx, query, func(run *workflow.WorkflowExecutionInfo) error {
		n++
		return s.signal(ctx, run.GetExecution().GetWorkflowId(), api.SignalForceContinue,
			api.Control{Reason: "the run is more than a day old", By: "sweeper"})
	})
	return n, err
}
