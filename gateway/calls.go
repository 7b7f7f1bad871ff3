package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

// Names of headers, on HTTP. To a worker they travel in lower case.
const (
	HeaderSession     = "Tempool-Session"
	HeaderTimeout     = "Tempool-Timeout" // milliseconds
	HeaderPriority    = "Tempool-Priority"
	HeaderWorker      = "Tempool-Worker"
	HeaderIncarnation = "Tempool-Incarnation"
)

// sessionHeader is how a worker, and what it asks of its host, learns the session of a call.
const sessionHeader = "tempool-session"

// Request is one call. Its fields must not change until the call returns.
type Request struct {
	Method string
	// Session is the client's session; a call of a pool goes to the worker that served it last, if that one is free.
	Session string
	// Priority of a call of a pool, MinPriority to MaxPriority, while it waits; highest first.
	Priority int
	// Headers go to the worker, which may see them with lower-case names.
	Headers map[string]string
	Body    []byte
	// OnChunk gets the pieces of a streamed answer in order. It may block, which slows the worker down; its error cancels the call.
	// nil joins them in front of the answer's body.
	OnChunk func([]byte) error

	placed func()                                       // of Execute
	begun  func(worker string, incarnation int64) error // of Execute
}

// Response is a worker's answer.
type Response struct {
	Worker      string
	Incarnation int64
	Headers     map[string]string // nil if the worker sent none
	Body        []byte
}

// Call runs a call under a client's lease. Errors are coded, and tell in Started whether the worker may have seen the request.
func (g *Gateway) Call(ctx context.Context, leaseID string, r Request) (*Response, error) {
	f, stop := g.newFlight(ctx, 0)
	defer stop()
	if err := g.enter(f.ctx, leaseID, f); err != nil {
		return nil, g.refusal(f, err)
	}
	response, err := f.run(r)
	f.seat.desk.end(f, err)
	return response, err
}

// callAttempts bounds how often a call is tried whose worker ended before it could see the request.
const callAttempts = 3

// CallPool runs a call on any fit worker of the pool that this host has; it waits for one in the pool's queue. Errors are as
// Call's.
func (g *Gateway) CallPool(ctx context.Context, pool string, r Request) (*Response, error) {
	ctx, stop := g.withDeadline(ctx, 0)
	defer stop()
	for attempt := 1; ; attempt++ {
		f := newFlight(ctx)
		f.placed = r.placed
		if r.begun == nil { // else nothing is sent before it was told
			f.prepare(r)
		}
		if err := g.place(pool, f, r.Session, r.Priority); err != nil {
			return nil, g.refusal(f, err)
		}
		if r.begun != nil {
			if err := r.begun(f.seat.worker, f.seat.incarnation); err != nil {
				f.seat.desk.end(f, errNotSent(err))
				return nil, err
			}
		}
		response, err := f.run(r)
		f.seat.desk.end(f, err)
		if err == nil || attempt == callAttempts || !errors.Is(err, api.ErrWorkerCrashed) || started(err) {
			return response, err
		}
	}
}

// withDeadline bounds a call by timeout, or by its own deadline, or else by the gateway's.
func (g *Gateway) withDeadline(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		if _, has := ctx.Deadline(); has {
			return ctx, func() {}
		}
		timeout = g.config.CallTimeout
	}
	return context.WithTimeout(ctx, timeout)
}

func newFlight(ctx context.Context) *flight {
	f := &flight{}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	return f
}

func (g *Gateway) newFlight(ctx context.Context, timeout time.Duration) (*flight, func()) {
	ctx, stop := g.withDeadline(ctx, timeout)
	f := newFlight(ctx)
	return f, func() { f.cancel(nil); stop() }
}

// refusal is the error of a call that was never begun.
func (g *Gateway) refusal(f *flight, err error) error {
	f.cancel(nil)
	var coded *api.Error
	switch {
	case errors.As(err, &coded):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return api.Errorf(api.CodeDeadlineExceeded, "the call's time was over before it could begin: %w", err)
	case errors.Is(err, context.Canceled):
		return api.Errorf(api.CodeCancelled, "the call was cancelled before it could begin: %w", err)
	}
	return err
}

// prepare makes the call's request ready to be sent by whoever frees a worker for it.
func (f *flight) prepare(r Request) {
	request := wire.Request{Method: r.Method, Headers: r.Headers, Payload: r.Body}
	if r.Session != "" && request.Headers[sessionHeader] == "" {
		request.Headers = withHeader(r.Headers, sessionHeader, r.Session)
	}
	f.method = r.Method
	f.call = wire.Prepare(f.ctx, request, f.answered)
}

// answered takes the call out of flight; the reader of the worker's connection calls it.
func (f *flight) answered(err error) {
	if err != nil {
		err = f.explain(f.method, err)
	}
	f.seat.desk.land(f, err)
}

// events tells of the answer to a call that somebody else has sent; nil never does.
func (f *flight) events() <-chan wire.Event {
	if f.call == nil {
		return nil
	}
	return f.call.Events()
}

// run sends the request over the worker's connection, if nobody else has, and waits for the answer.
func (f *flight) run(r Request) (*Response, error) {
	s := f.seat
	if s.conn == nil {
		return f.runHTTP(r)
	}
	if f.call == nil {
		f.prepare(r)
	}
	answer, err := f.call.Do(s.conn, f.news, r.OnChunk)
	if err != nil {
		return nil, f.explain(r.Method, err)
	}
	return &Response{Worker: s.worker, Incarnation: s.incarnation, Headers: answer.Headers, Body: answer.Payload}, nil
}

func withHeader(headers map[string]string, key, value string) map[string]string {
	more := make(map[string]string, len(headers)+1)
	for k, v := range headers {
		more[k] = v
	}
	more[key] = value
	return more
}

// explain codes the failure of a call that was handed to a connection.
func (f *flight) explain(method string, err error) error {
	var remote *wire.RemoteError
	if errors.As(err, &remote) {
		coded := api.Errorf(api.CodeWorkerError, "%s on %s failed: %w", method, f.seat.worker, err)
		coded.Started = true
		return coded
	}
	var call *wire.CallError
	began := true
	if errors.As(err, &call) {
		began, err = call.Started, call.Err
	}
	coded := f.code(method, err, began)
	coded.Started = began
	return coded
}

func (f *flight) code(method string, err error, began bool) *api.Error {
	var cause *api.Error
	var over *http.MaxBytesError // of a request passed on in plain HTTP
	worker := f.seat.worker
	switch {
	case errors.Is(err, context.Canceled) && errors.As(context.Cause(f.ctx), &cause): // fenced, or the gateway closes
		return api.Errorf(cause.Code, "%s", cause.Message)
	case errors.Is(err, context.DeadlineExceeded):
		return api.Errorf(api.CodeDeadlineExceeded, "%s on %s was not answered within the call's time: %w", method, worker, err)
	case errors.Is(err, context.Canceled), errors.Is(err, errClientGone):
		return api.Errorf(api.CodeCancelled, "%s on %s was cancelled by its caller: %w", method, worker, err)
	case errors.Is(err, wire.ErrTooLarge) && began:
		return api.Errorf(api.CodePayloadTooLarge, "the answer to %s is larger than pool.max_message (%s); stream it, or raise that limit: %w", method, f.seat.spec.Pool.MaxMessage, err)
	case errors.Is(err, wire.ErrTooLarge):
		return tooLarge(int64(f.seat.spec.Pool.MaxMessage))
	case errors.As(err, &over):
		return tooLarge(over.Limit)
	case errors.Is(err, wire.ErrInvalidParams), errors.Is(err, wire.ErrInvalidMethod):
		return api.Errorf(api.CodeInvalid, "%s cannot be sent to %s: %w", method, worker, err)
	case errors.As(err, &cause):
		return api.Errorf(cause.Code, "%w", err)
	}
	what := fmt.Sprintf("%s ended while it served %s", worker, method)
	if !began {
		what = fmt.Sprintf("%s ended before %s could be sent", worker, method)
	}
	select {
	case <-f.seat.process.Done():
		return api.Errorf(api.CodeWorkerCrashed, "%s (%s): %w", what, f.seat.process.Exit().Reason, err)
	default:
		return api.Errorf(api.CodeWorkerCrashed, "%s: %w", what, err)
	}
}

// errClientGone is why a stream's answer could not be passed on.
var errClientGone = errors.New("the client reads no more")

func tooLarge(limit int64) *api.Error {
	return api.Errorf(api.CodePayloadTooLarge, "the request is larger than the %d bytes allowed (pool.max_message); raise that limit or send less", limit)
}

// started reports whether a worker may have seen the request of the call that failed with err.
func started(err error) bool {
	var coded *api.Error
	return errors.As(err, &coded) && coded.Started
}

// errNotSent wraps why a call ended that was in flight but not yet handed to the worker.
func errNotSent(err error) error { return fmt.Errorf("the call was not sent: %w", err) }

// fatality is why the worker that gave this error wants to be replaced; empty if it does not.
func fatality(err error) string {
	if err == nil {
		return "" // before the variable, which costs an allocation
	}
	var remote *wire.RemoteError
	if errors.As(err, &remote) && remote.Fatal {
		return "the worker asked to be replaced: " + remote.Error()
	}
	return ""
}
