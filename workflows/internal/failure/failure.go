package failure

import (
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// Refusal turns a coded refusal into the failure that Temporal carries: its type is the code, its detail the hint.
func Refusal(e *api.Error) error {
	return temporal.NewApplicationErrorWithOptions(e.Message, string(e.Code), temporal.ApplicationErrorOptions{
		NonRetryable: !e.Code.Retryable(),
		Details:      []any{api.RefusalDetails{RetryAfterMS: e.RetryAfter.Milliseconds()}},
	})
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

// FailureReason says to a person why a step failed.
func FailureReason(err error) string {
	switch {
	case temporal.IsCanceledError(err):
		return "the workflow was cancelled"
	case NotStarted(err):
		return fmt.Sprintf("its host did not take that up within %s; is an agent running there?", loop.HostTimeout)
	case TimedOut(err):
		return "its host began that and was not heard of in time"
	}
	return Message(err)
}

// NotStarted reports whether nobody picked the activity up in time.
func NotStarted(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// TimedOut reports whether an agent picked the activity up and was not heard of again.
func TimedOut(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() != enums.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// Superseded reports whether a host refused a start because it knows this or a higher incarnation, and which.
func Superseded(err error) (newest int64, is bool) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != string(api.CodeSuperseded) || !app.HasDetails() {
		return 0, false
	}
	var details api.SupersededDetails
	if app.Details(&details) != nil {
		return 0, false
	}
	return details.Newest, true
}

// Message is what an activity's failure says to a person, without Temporal's wrapping.
func Message(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}
