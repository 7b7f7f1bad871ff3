package pool

import (
	"context"
	"errors"
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

// ErrClientGone is wrapped by an OnChunk error when the client of a stream has disconnected.
var ErrClientGone = errors.New("the client disconnected")

// notStarted codes the error of a call that never started.
func notStarted(err error) error {
	switch {
	case api.CodeOf(err) != "":
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return api.Errorf(api.CodeDeadlineExceeded, "the call's deadline passed before a worker was free: %w", err)
	case errors.Is(err, context.Canceled):
		return api.Errorf(api.CodeCancelled, "the call was cancelled before a worker was free: %w", err)
	}
	return err
}

// wireError codes the failure of a call that was handed to a connection.
func (c *Call) wireError(err error) error {
	if remote, ok := errors.AsType[*wire.RemoteError](err); ok {
		code := api.CodeWorkerError
		if remote.MethodNotFound() {
			code = api.CodeMethodNotFound
		}
		coded := api.Errorf(code, "%s on %s failed: %w", c.method, c.upstream.worker, err)
		coded.Started = true
		return coded
	}
	if failed, ok := errors.AsType[*wire.CallError](err); ok {
		return c.Fail(failed.Err, failed.Started)
	}
	return c.Fail(err, true)
}

// Fail codes the failure of a call; started says whether the worker may have seen the request.
func (c *Call) Fail(err error, started bool) *api.Error {
	coded := c.codedError(err, started)
	coded.Started = started
	return coded
}

func (c *Call) codedError(err error, started bool) *api.Error {
	var cause *api.Error
	method, worker := c.method, c.upstream.worker
	switch {
	case errors.Is(err, context.Canceled) && errors.As(c.cause(), &cause): // fenced, or the gateway closes
		return api.Errorf(cause.Code, "%s", cause.Message)
	case errors.Is(err, context.DeadlineExceeded):
		return api.Errorf(api.CodeDeadlineExceeded, "%s on %s did not answer before the call's deadline: %w", method, worker,
			err)
	case errors.Is(err, context.Canceled), errors.Is(err, ErrClientGone):
		return api.Errorf(api.CodeCancelled, "%s on %s was cancelled by its caller: %w", method, worker, err)
	case errors.Is(err, wire.ErrSlowReader):
		return api.Errorf(api.CodeSlowReader, "%s on %s was cancelled: %w", method, worker, err)
	case errors.Is(err, wire.ErrTooLarge) && started:
		return api.Errorf(api.CodePayloadTooLarge,
			"the answer to %s is larger than pool.max_message (%s); stream it or raise that limit: %w", method,
			c.upstream.spec.Pool.MaxMessage, err)
	case errors.Is(err, wire.ErrTooLarge):
		return TooLarge(c.MaxMessage())
	case errors.Is(err, wire.ErrInvalidParams), errors.Is(err, wire.ErrInvalidMethod):
		return api.Errorf(api.CodeInvalid, "%s cannot be sent to %s: %w", method, worker, err)
	case errors.As(err, &cause):
		return api.Errorf(cause.Code, "%w", err)
	}
	code, what := api.CodeWorkerCrashed, fmt.Sprintf("%s ended while it served %s", worker, method)
	switch {
	case !started:
		what = fmt.Sprintf("%s ended before %s was sent", worker, method)
	case c.upstream.process.MemoryLimitExceeded():
		code = api.CodeMemoryExceeded
		what = fmt.Sprintf("%s was killed for exceeding limits.memory = %q while it served %s", worker,
			c.upstream.process.Limits().Memory, method)
	}
	select {
	case <-c.upstream.process.Done():
		return api.Errorf(code, "%s (%s): %w", what, c.upstream.process.Exit().Reason, err)
	default:
		return api.Errorf(code, "%s: %w", what, err)
	}
}

// TooLarge is the error of a request with more than limit bytes.
func TooLarge(limit int64) *api.Error {
	return api.Errorf(api.CodePayloadTooLarge,
		"the request is larger than %d bytes (pool.max_message); raise that limit or send less", limit)
}

// Started reports whether a worker may have seen the request of the call that failed with err.
func Started(err error) bool {
	coded, ok := errors.AsType[*api.Error](err)
	return ok && coded.Started
}

// errNotSent wraps the reason why a call was not sent to the worker on which it had started.
func errNotSent(err error) error { return fmt.Errorf("the call was not sent: %w", err) }

// fatalReason is why the worker that returned err asks to be replaced, "" if it does not.
func fatalReason(err error) string {
	if err == nil {
		return "" // before the variable, which costs an allocation
	}
	if remote, ok := errors.AsType[*wire.RemoteError](err); ok && remote.Fatal {
		return "the worker asked to be replaced: " + remote.Error()
	}
	return ""
}
