package worker

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/activities/sweeper"
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

// startSweeper lets this agent take part in sweeping the namespace.
func (a *Agent) startSweeper(ctx context.Context, roster *activities.Roster) error {
	sweeps := &sweeper.Sweeper{Temporal: a.temporal, Namespace: a.client.Namespace(), Logger: a.log,
		Status: roster.Status, Pools: a.client.ListPools, PoolDown: a.metrics.PoolDown}
	poller := a.newWorker(api.SweeperQueue, sdkworker.Options{
		DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: heartbeatThrottle, MaxConcurrentActivityTaskPollers: 1,
	})
	register(poller, map[string]any{
		api.ActivitySweep: sweeps.Sweep, api.ActivityEndEpoch: sweeps.EndEpoch,
		api.ActivityReserveWorker: roster.ReserveWorker,
	})
	if err := startPolling(poller); err != nil {
		return err
	}
	a.sweeper = poller
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

// ensureSweeper starts the sweeper's workflow unless it runs.
func (a *Agent) ensureSweeper(ctx context.Context) error {
	_, err := a.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: api.SweeperWorkflowID, TaskQueue: api.TaskQueue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, api.WorkflowSweeper)
	if err != nil {
		return fmt.Errorf("start the sweeper: %w", err)
	}
	return nil
}
