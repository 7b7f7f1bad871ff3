package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/failure"
)

// Timeouts of the workflow Execute.
const (
	// executeTimeout bounds one attempt of a call without a timeout.
	executeTimeout = 10 * time.Minute
	// executeSlack is added to the call's timeout, so that the call's own error arrives.
	executeSlack = 30 * time.Second
)

// Execute makes one call on a pool and returns the worker's result. It waits for a worker until the workflow times out.
// A failure has the code of the activity's failure as its type.
func Execute(ctx workflow.Context, input converter.RawValue) (converter.RawValue, error) {
	var answer converter.RawValue
	in, err := api.ParseExecuteInput(input.Payload().GetData())
	if coded, ok := errors.AsType[*api.Error](err); ok {
		return answer, failure.Refusal(coded)
	}
	toClose := executeTimeout
	if in.TimeoutMS > 0 {
		toClose = time.Duration(in.TimeoutMS)*time.Millisecond + executeSlack
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: api.PoolQueue(in.Pool), StartToCloseTimeout: toClose, HeartbeatTimeout: api.HeartbeatTimeout,
		WaitForCancellation: true,
		Summary:             in.Method + " on pool " + in.Pool,
	})
	err = workflow.ExecuteActivity(ctx, api.ActivityExecute, in.ExecuteRequest).Get(ctx, &answer)
	return answer, err
}
