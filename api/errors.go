package api

import (
	"errors"
	"fmt"
	"time"
)

// Code says what kind of failure an error is; it is the same word in Go, in Temporal's failure type and in HTTP problems.
type Code string

// Why a checkout was refused. All of them may succeed later; RetryAfter says when it is worth trying.
const (
	CodeBusy       Code = "busy"
	CodeDegraded   Code = "degraded"
	CodeDraining   Code = "draining"
	CodeSuspended  Code = "suspended"
	CodeStarting   Code = "starting"
	CodeFailed     Code = "failed"
	CodeContinuing Code = "continuing" // the workflow is about to continue as new and takes no lease until it has
)

// Other failures of the control plane and the data plane.
const (
	CodeInvalid          Code = "invalid"
	CodePoolNotFound     Code = "pool_not_found"
	CodePoolExists       Code = "pool_exists"
	CodeWorkerNotFound   Code = "worker_not_found"
	CodeLeaseNotFound    Code = "lease_not_found"
	CodeLeaseFenced      Code = "lease_fenced"
	CodeSuperseded       Code = "superseded"
	CodeStartFailed      Code = "start_failed"
	CodeNoWorkers        Code = "no_workers"
	CodeQueueFull        Code = "queue_full"
	CodeQueueTimeout     Code = "queue_timeout"
	CodeDeadlineExceeded Code = "deadline_exceeded"
	CodeWorkerCrashed    Code = "worker_crashed"
	CodeWorkerError      Code = "worker_error"
	CodePayloadTooLarge  Code = "payload_too_large"
	CodeRateLimited      Code = "rate_limited"
	CodeUnavailable      Code = "unavailable" // Temporal or an agent cannot be reached
	CodeCancelled        Code = "cancelled"   // the caller's context was cancelled
)

// Failures of the session store.
const (
	CodeSessionNotFound  Code = "session_not_found"
	CodeSessionExists    Code = "session_exists"
	CodeProgramNotFound  Code = "program_not_found"
	CodeVersionConflict  Code = "version_conflict" // the session has another version than the one to be changed
	CodeStoreFull        Code = "store_full"
	CodeStoreUnavailable Code = "store_unavailable"
)

// Error is a failure with a code. Two Errors match in errors.Is when their codes do, so
//
//	errors.Is(err, tempool.ErrBusy)
//
// holds for every refusal with CodeBusy, whatever its sentence.
type Error struct {
	Code    Code
	Message string
	// RetryAfter is a hint: a retry sooner than this is unlikely to succeed. Zero when there is none.
	RetryAfter time.Duration
	// Started tells, for a call, whether the worker may have seen the request; only unstarted calls are safe to retry.
	Started bool
	Err     error
	// directions are the endpoints of gateways that can do what the one that was asked cannot.
	Gateways []string
}

// For errors.Is.
var (
	ErrBusy             = &Error{Code: CodeBusy}
	ErrDegraded         = &Error{Code: CodeDegraded}
	ErrDraining         = &Error{Code: CodeDraining}
	ErrSuspended        = &Error{Code: CodeSuspended}
	ErrStarting         = &Error{Code: CodeStarting}
	ErrFailed           = &Error{Code: CodeFailed}
	ErrContinuing       = &Error{Code: CodeContinuing}
	ErrPoolNotFound     = &Error{Code: CodePoolNotFound}
	ErrPoolExists       = &Error{Code: CodePoolExists}
	ErrWorkerNotFound   = &Error{Code: CodeWorkerNotFound}
	ErrLeaseNotFound    = &Error{Code: CodeLeaseNotFound}
	ErrLeaseFenced      = &Error{Code: CodeLeaseFenced}
	ErrNoWorkers        = &Error{Code: CodeNoWorkers}
	ErrQueueFull        = &Error{Code: CodeQueueFull}
	ErrQueueTimeout     = &Error{Code: CodeQueueTimeout}
	ErrDeadlineExceeded = &Error{Code: CodeDeadlineExceeded}
	ErrWorkerCrashed    = &Error{Code: CodeWorkerCrashed}
	ErrWorkerError      = &Error{Code: CodeWorkerError}
	ErrPayloadTooLarge  = &Error{Code: CodePayloadTooLarge}
	ErrRateLimited      = &Error{Code: CodeRateLimited}
	ErrInvalid          = &Error{Code: CodeInvalid}
	ErrCancelled        = &Error{Code: CodeCancelled}
	ErrUnavailable      = &Error{Code: CodeUnavailable}
	ErrSessionNotFound  = &Error{Code: CodeSessionNotFound}
	ErrSessionExists    = &Error{Code: CodeSessionExists}
	ErrProgramNotFound  = &Error{Code: CodeProgramNotFound}
	ErrVersionConflict  = &Error{Code: CodeVersionConflict}
	ErrStoreFull        = &Error{Code: CodeStoreFull}
	ErrStoreUnavailable = &Error{Code: CodeStoreUnavailable}
)

// Errorf makes an Error; a %w operand is unwrapped by errors.Is and errors.As.
func Errorf(code Code, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: wrapped.Error(), Err: errors.Unwrap(wrapped)}
}

func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// Is matches any *Error of the same code.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

// After returns e with a retry hint.
func (e *Error) After(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

// CodeOf is the code of the first Error in err's chain, or "" if there is none.
func CodeOf(err error) Code {
	var coded *Error
	if errors.As(err, &coded) {
		return coded.Code
	}
	return ""
}

// Retryable reports whether the refusal may pass by itself, so that trying again, here or on another worker, makes sense.
func (c Code) Retryable() bool {
	switch c {
	case CodeBusy, CodeDegraded, CodeDraining, CodeSuspended, CodeStarting, CodeFailed, CodeContinuing,
		CodeNoWorkers, CodeQueueFull, CodeQueueTimeout, CodeRateLimited, CodeUnavailable, CodeStoreUnavailable:
		return true
	}
	return false
}
