package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tempool/tempool/process/wire"
)

// Error is an error with a code of your own, and data for the caller.
type Error struct {
	Message string
	Code    string // "error" if empty
	Data    any    // anything JSON can represent; nil for none
	// Fatal means that this process must not be used again: Tempool returns the error to the caller and replaces the
	// process.
	Fatal bool
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Errorf returns an Error with a code of your own.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Fatalf returns an error after which Tempool replaces the process.
func Fatalf(format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Fatal: true}
}

// HostError is a host call that the host rejected or failed. Compare it by errors.Is with the errors below, or by Code.
type HostError struct {
	Message string
	Code    string
}

// Error returns the message.
func (e *HostError) Error() string { return e.Message }

// Is reports whether target has the same code.
func (e *HostError) Is(target error) bool {
	other, ok := target.(*HostError)
	return ok && other.Code == e.Code
}

// Errors of host calls.
var (
	ErrConflict        = &HostError{Code: "version_conflict", Message: "another call changed the session first"}
	ErrSessionNotFound = &HostError{Code: "session_not_found", Message: "the session does not exist"}
	ErrProgramNotFound = &HostError{Code: "program_not_found", Message: "the session has no program with that id"}
	errClosed          = &HostError{Code: "closed", Message: "the connection to the host has ended"}
)

// errOver refuses a piece of a stream whose handler has returned.
var errOver = errors.New("the handler of this stream has returned")

// The causes of a cancelled context: of a call by its caller, and of everything else by the end of its connection.
var (
	errCancelled = errors.New("the caller cancelled the call")
	errEnded     = errors.New("the connection to the host has ended")
)

// panicked is a panic of a handler. Its state is unknown, so the process is replaced.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprint("panic: ", p.value) }

const (
	maxMessageText = 2000 // characters of a message that is cut
	maxTraceback   = 4000
)

// errorPayload encodes what a handler returned as the payload of an error frame.
func errorPayload(ctx context.Context, err error) []byte {
	report := wire.RemoteError{Code: wire.CodeError, Type: fmt.Sprintf("%T", err), Message: err.Error()}
	var own *Error
	var host *HostError
	var crash *panicked
	switch {
	case errors.As(err, &own):
		report.Type, report.Fatal = "Error", own.Fatal
		if own.Fatal {
			report.Type = "Fatal"
		}
		if own.Code != "" {
			report.Code = own.Code
		}
		if own.Data != nil {
			var data []byte
			if failed := guarded(func() (err error) { data, err = json.Marshal(own.Data); return err }); failed != nil {
				data, _ = json.Marshal(fmt.Sprint(own.Data)) // a string always encodes
			}
			report.Data = data
		}
	case errors.As(err, &host):
		report.Code, report.Type = host.Code, "HostError"
	case errors.As(err, &crash):
		report.Type, report.Traceback, report.Fatal, report.Unhandled = "panic", string(crash.stack), true, true
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, errCancelled) || errors.Is(err, errEnded)):
		report.Code, report.Type = wire.CodeCancelled, "Cancelled"
	default:
		report.Unhandled = true
	}
	payload, failed := json.Marshal(report)
	if failed == nil && len(payload) <= wire.MaxControl {
		return payload
	}
	report.Data, report.Message, report.Traceback = nil, cut(report.Message, maxMessageText), cut(report.Traceback,
		maxTraceback)
	payload, _ = json.Marshal(report) // strings always encode
	return payload
}

func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most])
	}
	return text
}
