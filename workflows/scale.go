package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

// scaleTimeout bounds the update of a scheduled scale, with its repetitions while no agent or pool answers.
const scaleTimeout = 10 * time.Minute

// Scale sends a pool the update scale. A Schedule of Temporal, which can only start workflows, starts it; it fails if
// the pool refuses.
func Scale(ctx workflow.Context, request api.ScheduledScale) (result api.ScaleResult, err error) {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: time.Minute, ScheduleToCloseTimeout: scaleTimeout, Summary: "scale pool " + request.Pool,
	})
	err = workflow.ExecuteLocalActivity(ctx, api.ActivityScale, request).Get(ctx, &result)
	return result, err
}
