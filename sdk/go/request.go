package sdk

import (
	"context"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/internal/tracecontext"
	"github.com/tempool/tempool/process/wire"
)

// notBegun answers a request that this worker has not begun, and that the host may send to another one.
const notBegun = `{"code":"not_begun","message":"the worker ends, and has not begun the call","not_begun":true}`

// request answers one request, on a goroutine of its own.
func (c *connection) request(f wire.Frame) error {
	h, found := c.worker.method(f.Method)
	if !found {
		return c.sendError(f.ID, Errorf(wire.CodeMethodNotFound, "method %q not found; this worker has: %s",
			cut(f.Method, 100), cut(strings.Join(c.worker.names(), ", "), 1000)))
	}
	ctx, cancel := context.WithCancelCause(c.life)
	c.mu.Lock()
	c.inFlight[f.ID] = cancel
	c.mu.Unlock()
	ended := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.inFlight, f.ID)
		cancel(nil)
	}
	begun := c.begin(func() {
		answer, failure := c.answer(ctx, h, f)
		ended()
		if err := c.send(answer); err != nil {
			_ = c.sendError(f.ID, err) // such as headers that are too long; on another error the host is gone
		}
		c.of.panicked(failure)
	})
	if begun {
		return nil
	}
	ended()
	return c.send(wire.Frame{Type: wire.FrameError, ID: f.ID, Payload: []byte(notBegun)})
}

// answer runs the handler and encodes what it returns. The error is the handler's.
func (c *connection) answer(ctx context.Context, h handler, f wire.Frame) (wire.Frame, error) {
	if ms, err := strconv.ParseInt(f.Headers["tempool-timeout"], 10, 64); err == nil && ms >= 0 {
		ctx = callContext{ctx, time.Now().Add(time.Duration(min(ms, maxTimeout.Milliseconds())) * time.Millisecond)}
	}
	ctx, endSpan := withSpan(ctx, f)
	ctx, call := c.newCall(ctx, f)
	limit := c.maxMessage.Load()
	tooLarge := func(what string, size int) error {
		return Errorf(wire.CodeTooLarge, "%s has %d bytes, the limit is %d", what, size, limit)
	}
	var sending sync.Mutex // guards first and over
	first := true
	over := false // a piece behind the answer would break the connection
	payload, err := run(ctx, h, f.Payload, func(piece []byte) error {
		sending.Lock()
		defer sending.Unlock()
		if over {
			return errOver
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if int64(len(piece)) > limit {
			return tooLarge("a piece of the stream", len(piece))
		}
		chunk := wire.Frame{Type: wire.FrameChunk, ID: f.ID, Payload: piece}
		if first && call.sendsLines {
			chunk.Headers = map[string]string{"content-type": "application/x-ndjson"}
		}
		first = false
		return c.send(chunk)
	})
	sending.Lock()
	over = true
	sending.Unlock()
	if err == nil && int64(len(payload)) > limit {
		err = tooLarge("the result", len(payload))
	}
	endSpan(err)
	if err != nil {
		return wire.Frame{Type: wire.FrameError, ID: f.ID, Headers: call.responseHeaders(),
			Payload: errorPayload(ctx, err)}, err
	}
	return wire.Frame{Type: wire.FrameResponse, ID: f.ID, Headers: call.responseHeaders(), Payload: payload}, nil
}

// maxTimeout bounds the time of a call, so that no number overflows.
const maxTimeout = 365 * 24 * time.Hour

// callContext has the deadline of its call. The host cancels the call then, which ends the context: a handler that
// ended at the deadline would answer before the host reports that the time is over.
type callContext struct {
	context.Context
	deadline time.Time
}

// Deadline returns the time at which the caller stops waiting.
func (c callContext) Deadline() (time.Time, bool) { return c.deadline, true }

// newCall is the call of a request or notification, and its context.
func (c *connection) newCall(ctx context.Context, f wire.Frame) (context.Context, *Call) {
	call := &Call{Headers: f.Headers, Worker: c.of.Worker, Incarnation: c.of.Incarnation, conn: c, id: f.ID}
	return context.WithValue(ctx, callKey{}, call), call
}

// run calls a handler. A panic becomes an error.
func run(ctx context.Context, h handler, body []byte, send func([]byte) error) (payload []byte, err error) {
	err = guarded(func() error {
		payload, err = h(ctx, body, send)
		return err
	})
	return payload, err
}

// guarded calls a function of the program. A panic becomes an error; so does an error that panics when it is asked for
// its text, as a nil pointer in an interface may.
func guarded(call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicked{value, debug.Stack()}
		}
	}()
	if err = call(); err != nil {
		_ = err.Error()
	}
	return err
}

// withSpan returns the context of a call below the span that its caller names, and in a span of its own where the
// program has set a provider for OpenTelemetry. It makes none below a caller that does not sample its trace, and does
// nothing without a caller.
func withSpan(ctx context.Context, f wire.Frame) (_ context.Context, end func(error)) {
	parent := tracecontext.Parse(f.Headers[tracecontext.Traceparent], f.Headers[tracecontext.Tracestate])
	if !parent.IsValid() {
		return ctx, func(error) {}
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	if !parent.IsSampled() {
		return ctx, func(error) {}
	}
	ctx, span := otel.GetTracerProvider().Tracer(tracecontext.Scope).Start(ctx, f.Method,
		trace.WithSpanKind(trace.SpanKindServer))
	return ctx, func(err error) {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}
