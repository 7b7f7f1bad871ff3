package activities

import (
	"context"
	"errors"

	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

const unknownProcess = "unknown process: its agent was restarted, and the process tree was killed then"

// nonRetryable makes an ApplicationError of a code and a sentence. Temporal does not retry it: the workflow decides
// what follows.
func nonRetryable(code api.Code, sentence string) error {
	return temporal.NewNonRetryableApplicationError(sentence, string(code), nil)
}

// fromCoded converts a coded error to a non-retryable ApplicationError with the same message.
func fromCoded(err error) error {
	return nonRetryable(api.CodeOf(err), api.MessageOf(err))
}

// fromProcess converts an error of the process package: a cancellation to a CanceledError, any other to a non-retryable
// ApplicationError.
func fromProcess(err error) error {
	if errors.Is(err, context.Canceled) {
		return temporal.NewCanceledError(err.Error())
	}
	code := api.CodeUnavailable
	if coded, ok := errors.AsType[*process.Error](err); ok {
		code = api.Code(coded.Code)
	}
	return nonRetryable(code, err.Error())
}
