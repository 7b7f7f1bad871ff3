// Package failure makes workflow failures out of coded errors, and reads the failures of activities.
package failure

import (
	"errors"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

// Refusal is the failure that carries a coded error: its type is the code, its detail the retry hint.
func Refusal(e *api.Error) error {
	return temporal.NewApplicationErrorWithOptions(e.Message, string(e.Code), temporal.ApplicationErrorOptions{
		NonRetryable: !e.Code.Retryable(),
		Details:      []any{api.RefusalDetails{RetryAfterMS: e.RetryAfter.Milliseconds()}},
	})
}

// Validator makes the validator of an update out of a check.
func Validator[T any](check func(T) *api.Error) workflow.UpdateHandlerOptions {
	return workflow.UpdateHandlerOptions{Validator: func(request T) error {
		if refused := check(request); refused != nil {
			return Refusal(refused)
		}
		return nil
	}}
}

// NotStarted reports whether no agent took the activity in time.
func NotStarted(err error) bool {
	timeout, ok := errors.AsType[*temporal.TimeoutError](err)
	return ok && timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// NoResources reports whether the host that took a start had no resources for another process, or its agent stopped.
func NoResources(err error) bool {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && app.Type() == string(api.CodeNoWorkers)
}

// TimedOut reports whether an agent took the activity and did not finish it in time.
func TimedOut(err error) bool {
	timeout, ok := errors.AsType[*temporal.TimeoutError](err)
	return ok && timeout.TimeoutType() != enums.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// details are those of an activity's failure of a code; false if it is another failure, or has details of another
// shape.
func details[T any](err error, code api.Code) (found T, ok bool) {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	ok = ok && app.Type() == string(code) && app.HasDetails() && app.Details(&found) == nil
	return found, ok
}

// Superseded reports whether a host refused a start because it knows the same or a higher incarnation, and which.
func Superseded(err error) (newest int64, superseded bool) {
	found, superseded := details[api.SupersededDetails](err, api.CodeSuperseded)
	return found.Newest, superseded
}

// Served is the usage of a process whose start failed after it had been ready.
func Served(err error) api.Usage {
	found, _ := details[api.StartFailedDetails](err, api.CodeStartFailed)
	return found.Usage
}

// Message is the message of an activity's failure, without Temporal's wrapping.
func Message(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return app.Message()
	}
	return err.Error()
}

// CodeOf is the code of an activity's failure.
func CodeOf(err error) api.Code {
	var app *temporal.ApplicationError
	switch {
	case temporal.IsCanceledError(err):
		return api.CodeCancelled
	case errors.As(err, &app) && app.Type() != "":
		return api.Code(app.Type())
	}
	return api.CodeUnavailable
}

// Reason is why an activity on a host failed, for people.
func Reason(err error) string {
	switch {
	case temporal.IsCanceledError(err):
		return "the workflow was cancelled"
	case NotStarted(err):
		return "no agent on the host took the activity in time; check that the agent is running"
	case TimedOut(err):
		return "the host took the activity and did not finish it in time"
	}
	return Message(err)
}
