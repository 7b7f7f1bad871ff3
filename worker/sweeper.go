package worker

import (
	"context"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
)

// startSweeper lets this agent take its turn in sweeping the namespace.
func (a *Agent) startSweeper(ctx context.Context, namespace string) error {
	turn := a.newWorker(api.SweeperQueue, sdkworker.Options{
		DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: heartbeatThrottle, MaxConcurrentActivityTaskPollers: 1,
	})
	sweeps := &activities.Sweeper{Temporal: a.temporal, Namespace: namespace, Logger: a.log}
	register(turn, map[string]any{api.ActivitySweep: sweeps.Sweep, api.ActivityEndEpoch: sweeps.EndEpoch})
	if err := startPolling(turn); err != nil {
		return err
	}
	a.sweeper = turn
	_, err := a.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: api.SweeperWorkflowID, TaskQueue: api.TaskQueue, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, api.WorkflowSweeper, api.SweepProgress{})
	if err != nil {
		return fmt.Errorf("start the sweeper: %w", err)
	}
	return nil
}
