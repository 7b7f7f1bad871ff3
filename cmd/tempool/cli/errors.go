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
	codeUnexpected  api.Code = "unexpected" // an error without a code
)

// usageError is a wrong command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// describe returns the code and the message of an error, without the secrets of URLs.
func describe(err error) (api.Code, string) {
	code, message := codeAndMessage(err)
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

func codeAndMessage(err error) (api.Code, string) {
	var usage usageError
	var coded *api.Error
	switch {
	case errors.As(err, &usage):
		return codeUsage, usage.Error()
	case errors.Is(err, context.Canceled):
		return codeInterrupted, "interrupted; the operation continues in Temporal, run tempool ps to follow it"
	case errors.As(err, &coded):
		return coded.Code, cmp.Or(coded.Message, string(coded.Code)) + credentialsHint(err)
	}
	return codeUnexpected, err.Error()
}

// credentialsHint says which flag an error of a gateway asks for.
func credentialsHint(err error) string {
	var authority x509.UnknownAuthorityError
	switch {
	case errors.Is(err, api.ErrUnauthorized):
		return "; give tempool the token with --token-file or in TEMPOOL_TOKEN"
	case errors.As(err, &authority):
		return "; name the gateway's CA certificates with --ca-file or in TEMPOOL_CA_FILE"
	}
	return ""
}

// fail prints an error to stderr, in the format of -o, and returns the exit code.
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
		_ = writeJSON(a.err, failure) // an unwritable stderr cannot be reported anywhere
	} else {
		fmt.Fprintf(a.err, "tempool: %s\n", printableLines(message))
	}
	if code == codeUsage {
		return ExitUsage
	}
	return ExitFailed
}
