package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// sweeperInterval is the time between two checks whether the sweeper's workflow runs: it may be ended from outside,
	// like any other.
	sweeperInterval = 30 * time.Second
	// sweeperTimeout bounds one check.
	sweeperTimeout = 10 * time.Second
)

// startSweeper lets this agent take its turn in sweeping the namespace.
func (a *Agent) startSweeper(ctx context.Context, sweeper *activities.Sweeper, roster *activities.Roster) error {
	turn := a.newWorker(api.SweeperQueue, sdkworker.Options{
		DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: heartbeatThrottle, MaxConcurrentActivityTaskPollers: 1,
	})
	register(turn, map[string]any{
		api.ActivitySweep: sweeper.Sweep, api.ActivityEndEpoch: sweeper.EndEpoch,
		api.ActivityWorkerLeases: roster.WorkerLeases, api.ActivityReserveWorker: roster.ReserveWorker,
	})
	if err := startPolling(turn); err != nil {
		return err
	}
	a.sweeper = turn
	if err := a.ensureSweeper(ctx); err != nil {
		return err
	}
	a.goroutines.Go(func() {
		for range sleep.Ticks(a.background.Done(), sweeperInterval) {
			ctx, cancel := context.WithTimeout(a.background, sweeperTimeout)
			if err := a.ensureSweeper(ctx); err != nil && a.background.Err() == nil {
				a.log.Warn("cannot check whether the sweeper runs; retrying", "error", err)
			}
			cancel()
		}
	})
	return nil
}

// ensureSweeper starts the sweeper's workflow unless it runs. One that has ended was responsible until its end.
func (a *Agent) ensureSweeper(ctx context.Context) error {
	var progress api.SweepProgress
	answer, err := a.temporal.DescribeWorkflowExecution(ctx, api.SweeperWorkflowID, "")
	var notFound *serviceerror.NotFound
	switch last := answer.GetWorkflowExecutionInfo(); {
	case err != nil && !errors.As(err, &notFound):
		return fmt.Errorf("describe the sweeper: %w", err)
	case last.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return nil
	case last.GetCloseTime() != nil:
		progress.After = last.GetCloseTime().AsTime()
	}
	_, err = a.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: api.SweeperWorkflowID, TaskQueue: api.TaskQueue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, api.WorkflowSweeper, progress)
	if err != nil {
		return fmt.Errorf("start the sweeper: %w", err)
	}
	return nil
}
