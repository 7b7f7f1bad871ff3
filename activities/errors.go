package activities

import (
	"context"
	"errors"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"go.temporal.io/sdk/temporal"
)

const unknownReason = "the host does not know the process: its agent was restarted, and its tree was taken down then"

// refusal gives a coded error its Temporal type, with the same sentence.
func refusal(err error) error {
	sentence := err.Error()
	var coded *api.Error
	if errors.As(err, &coded) {
		sentence = coded.Message
	}
	return temporal.NewNonRetryableApplicationError(sentence, string(api.CodeOf(err)), nil)
}

// failure gives an error of this host its Temporal type. None is retried by Temporal: the worker decides what follows.
func failure(err error) error {
	code := string(api.CodeUnavailable)
	var coded *process.Error
	if errors.As(err, &coded) {
		code = string(coded.Code)
	}
	if errors.Is(err, context.Canceled) {
		return temporal.NewCanceledError(err.Error())
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), code, nil)
}
