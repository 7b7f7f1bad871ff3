package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tempool/tempool/api"
)

// Codes of failures that only ctl knows.
const (
	codeUsage       api.Code = "usage"
	codeInterrupted api.Code = "interrupted"
	codeTimeout     api.Code = "timeout"    // what was waited for did not come about in time
	codeUnexpected  api.Code = "unexpected" // an error nobody gave a code
)

// usageError is a mistake in the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// exitCode is the program's answer to how a command ended.
func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &usage):
		return ExitUsage
	}
	return ExitFailed
}

// describe is the code and the sentence of a failure.
func describe(err error) (api.Code, string) {
	var usage usageError
	var coded *api.Error
	switch {
	case errors.As(err, &usage):
		return codeUsage, usage.Error()
	case errors.Is(err, context.Canceled):
		return codeInterrupted, "interrupted; what was asked for goes on by itself, and ctl ps shows how"
	case errors.As(err, &coded):
		return coded.Code, cmp.Or(coded.Message, string(coded.Code))
	}
	return codeUnexpected, err.Error()
}

// fail says on stderr, in the format asked for, why the command failed.
func (a *app) fail(err error) int {
	code, message := describe(err)
	if a.format == formatJSON {
		var failure struct {
			Error struct {
				Code    api.Code `json:"code"`
				Message string   `json:"message"`
			} `json:"error"`
		}
		failure.Error.Code, failure.Error.Message = code, message
		// Nobody is left to tell when stderr itself cannot be written.
		_ = writeJSON(a.err, failure)
	} else {
		fmt.Fprintf(a.err, "ctl: %s\n", message)
	}
	return exitCode(err)
}
