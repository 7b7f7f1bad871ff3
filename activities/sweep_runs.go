package activities

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/workflow/v1"

	"github.com/tempool/tempool/api"
)

const (
	// longRunInterval is the time between two searches for runs that should have continued as new.
	longRunInterval = time.Hour
	// longRun is the age of such a run. Pools and workers continue as new within a day if anything wakes them; a worker
	// that rests, or a pool in which nothing happens, sleeps until something does.
	longRun = 25 * time.Hour
)

// ContinueRunsBefore has the pools and workers whose runs started before a time continue as new, and returns their
// number. A run then ends within about a day, and with it the need for code that only its history uses. It calls alive
// before each.
func (s *Sweeper) ContinueRunsBefore(ctx context.Context, started time.Time, alive func()) (int, error) {
	query := fmt.Sprintf("WorkflowType IN ('%s', '%s') AND StartTime < '%s' AND ExecutionStatus = 'Running'",
		api.WorkflowWorker, api.WorkflowPool, started.UTC().Format(time.RFC3339Nano))
	n := 0
	err := s.each(ctx, query, func(run *workflow.WorkflowExecutionInfo) error {
		alive()
		n++
		return s.signal(ctx, run.GetExecution().GetWorkflowId(), api.SignalForceContinue,
			api.Control{Reason: "the run is more than a day old", By: "sweeper"})
	})
	return n, err
}

// continueLongRuns calls ContinueRunsBefore once in longRunInterval.
func (s *sweep) continueLongRuns(ctx context.Context) error {
	now := time.Now()
	if now.Sub(s.longRuns) < longRunInterval {
		return nil
	}
	n, err := s.ContinueRunsBefore(ctx, now.Add(-longRun), s.alive(ctx))
	if err != nil {
		return fmt.Errorf("continue old runs as new: %w", err)
	}
	s.longRuns = now
	if n > 0 {
		s.Logger.Info("asked old runs of idle workflows to continue as new", "runs", n)
	}
	return nil
}
