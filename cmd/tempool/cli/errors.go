package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/redact"
)

// Codes of failures that arise in tempool itself.
const (
	codeUsage       api.Code = "usage"
	codeInterrupted api.Code = "interrupted"
	codeTimeout     api.Code = "timeout"    // a wait took longer than its limit
	codeHalted      api.Code = "halted"     // an operator halted the rollout that was waited for
	codeUnexpected  api.Code = "unexpected" // an error without a code
)

// usageError is a wrong command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// warnedError is an error that a warning has said.
type warnedError struct{ error }

// describe returns the code and the message of an error, without the secrets of URLs.
func describe(err error) (api.Code, string) {
	code, message := codeUnexpected, err.Error()
	if usage, is := errors.AsType[usageError](err); is {
		code, message = codeUsage, usage.Error()
	} else if errors.Is(err, context.Canceled) {
		code = codeInterrupted
		message = "interrupted; the operation continues in Temporal, run tempool ps to follow it"
	} else if coded, is := errors.AsType[*api.Error](err); is {
		code, message = coded.Code, cmp.Or(coded.Message, string(coded.Code))+credentialsHint(err)
	}
	return code, redact.URLs(message)
}

// message is the sentence of an error.
func message(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	_, text := describe(err)
	return text
}

// credentialsHint says which flag an error of a gateway asks for.
func credentialsHint(err error) string {
	if errors.Is(err, api.ErrUnauthorized) {
		return "; give tempool the token with --token-file or in TEMPOOL_TOKEN"
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return "; name the gateway's CA certificates with --ca-file or in TEMPOOL_CA_FILE"
	}
	return ""
}

// fail prints an error to stderr, in the format of -o, and returns the exit code.
func (a *app) fail(err error) int {
	if warned, ok := errors.AsType[warnedError](err); ok {
		if a.format != formatJSON { // where a program reads the code
			return ExitFailed
		}
		err = warned.error
	}
	code, message := describe(err)
	if a.format == formatJSON {
		failure := map[string]any{"error": map[string]any{"code": code, "message": message}}
		_ = writeJSON(a.err, failure) // an unwritable stderr cannot be reported anywhere
	} else {
		fmt.Fprintf(a.err, "tempool: %s\n", printableLines(message))
	}
	if code == codeUsage {
		return ExitUsage
	}
	return ExitFailed
}
