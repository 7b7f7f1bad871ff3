// Package tempoolworkflow calls pools from workflows written in Go.
package tempoolworkflow

import (
	"cmp"
	"encoding/json"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

// Defaults of the activity of a call.
const (
	// DefaultTimeout bounds one attempt, from when an agent takes the call. Where the request has a longer timeout, that
	// and answerTime do.
	DefaultTimeout = time.Minute
	// DefaultHeartbeat detects a dead agent.
	DefaultHeartbeat = api.HeartbeatTimeout
)

// answerTime is what the activity of a call that has taken all of its own timeout has left to answer.
const answerTime = 5 * time.Second

// Execute calls a method on any worker of a pool, through the activity Execute that the agents of the pool host, and
// returns its answer, decoded from JSON. params is sent as JSON; nil means none. The call waits in Temporal until an
// agent has a free worker, and is retried as the activity's retry policy says.
//
// Activity options of ctx apply; what they leave open has the defaults of this package, and an Execute whose
// queue.timeout has passed is not retried. Errors are *temporal.ApplicationError with the code as type.
func Execute[Out any](ctx workflow.Context, pool, method string, params any) (out Out, err error) {
	return ExecuteRequest[Out](ctx, pool, api.ExecuteRequest{Method: method}, params)
}

// ExecuteRequest is Execute with a session, a timeout within the agent, or the right to repeat a call that may have
// started.
func ExecuteRequest[Out any](ctx workflow.Context, pool string, request api.ExecuteRequest,
	params any) (Out, error) {
	o := workflow.GetActivityOptions(ctx)
	o.TaskQueue = api.PoolQueue(pool)
	return execute[Out](ctx, o, request, params)
}

// execute runs the activity Execute, with defaults for the options that are not set.
func execute[Out any](ctx workflow.Context, o workflow.ActivityOptions, request api.ExecuteRequest,
	params any) (out Out, err error) {
	if params != nil {
		if request.Params, err = json.Marshal(params); err != nil {
			return out, err
		}
	}
	longest := max(DefaultTimeout, time.Duration(request.TimeoutMS)*time.Millisecond+answerTime)
	o.StartToCloseTimeout = cmp.Or(o.StartToCloseTimeout, longest)
	o.HeartbeatTimeout = cmp.Or(o.HeartbeatTimeout, DefaultHeartbeat)
	o.WaitForCancellation = true
	if o.RetryPolicy == nil {
		o.RetryPolicy = &temporal.RetryPolicy{NonRetryableErrorTypes: []string{string(api.CodeQueueTimeout)}}
	}
	err = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, o), api.ActivityExecute, request).Get(ctx, &out)
	return out, err
}
