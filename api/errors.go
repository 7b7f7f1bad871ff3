package api

import (
	"errors"
	"fmt"
	"time"
)

// Code is the kind of a failure: the same word in Go, in Temporal's failure type and in HTTP problems.
type Code string

// Reasons to reject a checkout. A retry may succeed later; RetryAfter says when.
const (
	CodeBusy       Code = "busy"
	CodeDegraded   Code = "degraded"
	CodeDraining   Code = "draining"
	CodeSuspended  Code = "suspended"
	CodeStarting   Code = "starting"
	CodeFailed     Code = "failed"
	CodeContinuing Code = "continuing" // the workflow is about to continue as new and grants no lease until then
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
	CodeMethodNotFound   Code = "method_not_found" // the worker has no such method
	// the worker was killed during the call for exceeding limits.memory
	CodeMemoryExceeded  Code = "memory_limit_exceeded"
	CodePayloadTooLarge Code = "payload_too_large"
	CodeRateLimited     Code = "rate_limited"
	CodeUnavailable     Code = "unavailable"  // Temporal or an agent does not answer
	CodeCancelled       Code = "cancelled"    // the caller's context was cancelled
	CodeHostTaken       Code = "host_taken"   // another agent holds the host id
	CodeUnauthorized    Code = "unauthorized" // the gateway does not know the client
	CodeForbidden       Code = "forbidden"    // the client lacks a right, or the token of the lease
	CodeKeyRequired     Code = "key_required" // the pool has isolation.by = "key", and the call names no key
	CodeSlowReader      Code = "slow_reader"  // the client of a stream read too slowly, and other calls share its worker
)

// Failures of the session store.
const (
	CodeSessionNotFound Code = "session_not_found"
	CodeSessionExists   Code = "session_exists"
	CodeProgramNotFound Code = "program_not_found"
	// the session or the spec does not have the version that the request names
	CodeVersionConflict  Code = "version_conflict"
	CodeStoreFull        Code = "store_full"
	CodeStoreUnavailable Code = "store_unavailable"
)

// Error is a failure with a code. errors.Is matches two Errors with the same code, so
//
//	errors.Is(err, tempool.ErrBusy)
//
// is true for every Error with CodeBusy, whatever its message.
type Error struct {
	Code    Code
	Message string
	// RetryAfter is a hint: an earlier retry is unlikely to succeed. Zero means no hint.
	RetryAfter time.Duration
	// Started says for a call that a worker may have seen the request. Only calls that did not start are safe to retry.
	Started bool
	Err     error // the cause, for errors.Is and errors.As
	// Gateways are the endpoints of gateways that can answer the request instead.
	Gateways []string
}

// Targets for errors.Is.
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
	ErrMethodNotFound   = &Error{Code: CodeMethodNotFound}
	ErrMemoryExceeded   = &Error{Code: CodeMemoryExceeded}
	ErrPayloadTooLarge  = &Error{Code: CodePayloadTooLarge}
	ErrRateLimited      = &Error{Code: CodeRateLimited}
	ErrInvalid          = &Error{Code: CodeInvalid}
	ErrCancelled        = &Error{Code: CodeCancelled}
	ErrUnavailable      = &Error{Code: CodeUnavailable}
	ErrHostTaken        = &Error{Code: CodeHostTaken}
	ErrUnauthorized     = &Error{Code: CodeUnauthorized}
	ErrForbidden        = &Error{Code: CodeForbidden}
	ErrKeyRequired      = &Error{Code: CodeKeyRequired}
	ErrSlowReader       = &Error{Code: CodeSlowReader}
	ErrSessionNotFound  = &Error{Code: CodeSessionNotFound}
	ErrSessionExists    = &Error{Code: CodeSessionExists}
	ErrProgramNotFound  = &Error{Code: CodeProgramNotFound}
	ErrVersionConflict  = &Error{Code: CodeVersionConflict}
	ErrStoreFull        = &Error{Code: CodeStoreFull}
	ErrStoreUnavailable = &Error{Code: CodeStoreUnavailable}
)

// Errorf returns an Error with a formatted message; its %w operand becomes Err.
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

// Is reports whether target is an *Error with the same code.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

// After sets the retry hint and returns e.
func (e *Error) After(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

// CodeOf returns the code of the first Error in err's chain, or "" if there is none.
func CodeOf(err error) Code {
	if coded, ok := errors.AsType[*Error](err); ok {
		return coded.Code
	}
	return ""
}

// MessageOf returns the message of the first Error in err's chain, else err's text.
func MessageOf(err error) string {
	if coded, ok := errors.AsType[*Error](err); ok {
		return coded.Message
	}
	return err.Error()
}

// Retryable reports whether the failure is temporary, so that a retry, on this or another worker, may succeed.
// CodeSuspended is so for a checkout, which may get another worker; a call or a renewal that it refuses names one
// worker, and fails until an operator resumes that one.
func (c Code) Retryable() bool {
	switch c {
	case CodeBusy, CodeDegraded, CodeDraining, CodeSuspended, CodeStarting, CodeFailed, CodeContinuing,
		CodeNoWorkers, CodeQueueFull, CodeQueueTimeout, CodeRateLimited, CodeUnavailable, CodeStoreUnavailable:
		return true
	}
	return false
}
