package activities

import (
	"context"
	"errors"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"go.temporal.io/sdk/temporal"
)

const unknownProcess = "the host does not know the process: its agent was restarted, and its tree was taken down then"

// fromCoded gives a coded error its Temporal type, with the same sentence.
func fromCoded(err error) error {
	sentence := err.Error()
	var coded *api.Error
	if errors.As(err, &coded) {
		sentence = coded.Message
	}
	return temporal.NewNonRetryableApplicationError(sentence, string(api.CodeOf(err)), nil)
}

// fromProcess gives an error of this host its Temporal type. None is retried by Temporal: the worker decides what follows.
func fromProcess(err error) error {
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
