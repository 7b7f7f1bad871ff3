// Package sweeper holds the workflow that runs one sweep for closed workflows in a namespace, on any agent.
package sweeper

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

const (
	// runLength is how long one sweep lasts; the workflow continues as new after each.
	runLength = 24 * time.Hour
	// runSlack is what a sweep has beyond that to return.
	runSlack = time.Minute
	// retryInterval is the time before another agent sweeps in place of one that fell silent.
	retryInterval = time.Second
)

// Workflow is the workflow of the sweeper, type api.WorkflowSweeper. It never completes.
func Workflow(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           api.SweeperQueue,
		StartToCloseTimeout: runLength + runSlack,
		HeartbeatTimeout:    api.HeartbeatTimeout,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: retryInterval, BackoffCoefficient: 1},
		Summary:             "find workflows that ended without a report",
	})
	if err := workflow.ExecuteActivity(ctx, api.ActivitySweep, runLength).Get(ctx, nil); err != nil {
		return err
	}
	return workflow.NewContinueAsNewError(ctx, api.WorkflowSweeper)
}
