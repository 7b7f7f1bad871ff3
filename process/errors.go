package process

import (
	"errors"
	"fmt"
	"syscall"
)

// Code is the kind of a failure. The words are those of Tempool's coded errors.
type Code string

// Codes of this package.
const (
	CodeInvalid     Code = "invalid"      // the launch or the configuration cannot work as it is
	CodeSuperseded  Code = "superseded"   // this incarnation of the worker or a higher one was started
	CodeStartFailed Code = "start_failed" // the process did not become ready
	CodeBusy        Code = "busy"         // the probe was skipped: max_inflight calls are in flight
	// CodeUnavailable: the supervisor is closed, another one holds the state directory, or the process has ended or is
	// about to.
	CodeUnavailable Code = "unavailable"
)

// Error is a failure with a code. Two Errors match in errors.Is when their codes do.
type Error struct {
	Code    Code
	Message string // may be empty if Err is set
	Err     error
}

// For errors.Is.
var (
	ErrSuperseded  = &Error{Code: CodeSuperseded}
	ErrStartFailed = &Error{Code: CodeStartFailed}
	// ErrBusy is the error of a skipped rpc probe: max_inflight calls are in flight. It says nothing about the worker's
	// health, since those calls have deadlines of their own.
	ErrBusy        = &Error{Code: CodeBusy}
	ErrUnavailable = &Error{Code: CodeUnavailable}
	// ErrExhausted is why a start failed that says nothing about the program: the host lacks processes, descriptors,
	// memory or disk space for it, or the agent cannot write its own files about it.
	ErrExhausted = errors.New("this host is out of resources for another process")
)

// markExhausted makes an error that says so an ErrExhausted.
func markExhausted(err error) error {
	if errors.Is(err, ErrExhausted) {
		return err
	}
	for _, errno := range []error{syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC,
		syscall.EDQUOT} {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %w", ErrExhausted, err)
		}
	}
	return err
}

func coded(code Code, err error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: err}
}

func (e *Error) Error() string {
	switch {
	case e.Err == nil && e.Message == "":
		return string(e.Code)
	case e.Err == nil:
		return e.Message
	case e.Message == "":
		return e.Err.Error()
	}
	return e.Message + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Is matches any *Error of the same code.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}
