package pool

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/tracecontext"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
)

// sessionHeader carries the session of a call to its worker, where names of headers are lower case.
var sessionHeader = strings.ToLower(api.HeaderSession)

// Request is one call. Its fields must not change until the call returns.
type Request struct {
	Method string
	// Session is the client's session; a call of a pool prefers the worker that served it last.
	Session string
	// Key says whose call it is, in 1 to 256 bytes, for a pool with isolation.by = "key"; "" for any other.
	Key string
	// Priority of a call of a pool in the queue, MinPriority to MaxPriority; the highest goes first.
	Priority int
	// Client names who makes the call. A full queue displaces calls of the client that has the most in it.
	Client string
	// Headers go to the worker. Their names are lower case.
	Headers map[string]string
	// Trace goes to the worker in place of the trace in Headers. It names the trace of a call that the caller has decided
	// not to sample; if it is zero the Dispatcher decides, by the span of the context.
	Trace wire.Trace
	Body  []byte
	// OnChunk gets the chunks of a streamed answer in order, the first one with the content type of the stream if the
	// worker says it. It may block, which slows the worker down; its error cancels the call. nil puts the chunks in front
	// of the answer's body, and a worker of plain HTTP streams nothing.
	OnChunk func(chunk []byte, contentType string) error
	// Unbuffered says that only the caller of Do sends the request, such as one whose Body it forwards from elsewhere.
	Unbuffered bool
	// Verb is the HTTP method for a worker of plain HTTP, from a bounded set; it names the call's span and its figures,
	// since Method is a path that may hold secrets.
	Verb string
	// Deadline is when the call must end; zero for call.timeout of its pool, which is the longest that any call has.
	Deadline time.Time

	// Forward has another host serve a call of a pool that has waited in the queue, and returns when it is answered. It
	// fails with ErrNotTaken if the call must wait here again. nil keeps the call on this host.
	Forward func(ctx context.Context, to Place) error

	traced bool // the caller sends it, with the span of the attempt as its Trace
	// of Execute: onQueued is called under a lock once the call is queued or started, onStart before the request is sent;
	// its error ends the call
	onQueued func()
	onStart  func(worker string, incarnation int64) error
}

// wire is the request as it is sent.
func (r Request) wire() wire.Request {
	request := wire.Request{Method: r.Method, Headers: r.Headers, Trace: r.Trace, Payload: r.Body}
	if r.Session != "" && request.Headers[sessionHeader] == "" {
		request.Headers = make(map[string]string, len(r.Headers)+1)
		maps.Copy(request.Headers, r.Headers)
		request.Headers[sessionHeader] = r.Session
	}
	return request
}

// Response is a worker's answer.
type Response struct {
	Worker      string
	Incarnation int64
	Headers     map[string]string // nil if the worker sent none
	Body        []byte

	failure *api.Error // of a call whose client has an answer nevertheless; for its trace
}

// Call is a call in progress. Complete ends it.
type Call struct {
	upstream      *upstream
	conn          *wire.Conn   // of the process that serves it; see beginUseLocked
	inUse         bool         // it is counted in the use of an isolated process
	lease         *activeLease // nil for a call of the pool
	startedAt     time.Time
	ctx           context.Context
	stop          context.CancelFunc // of ctx
	reason        atomic.Pointer[error]
	method, verb  string
	session       string          // of a call of the pool
	key           string          // its hash; see use
	binding       process.Binding // what a process is started with for the key
	traceID       string          // of a call that is sampled; "" for another
	onQueued      func()
	forward       func(context.Context, Place) error // nil if it must not leave this host
	client        string
	response      *Response
	waited        bool    // it was not started at once
	alone         bool    // it may be sent at once; else see awaitAlone
	mayStartAgain bool    // if its worker ends before it sees the request
	arrived       arrival // in the queue; zero if it never was there
	// waitedElsewhere is how long it waited on the host that forwarded it, if it was not queued here.
	waitedElsewhere time.Duration

	exchange *wire.Exchange // the request to the worker; nil until it is prepared
}

func newCall(ctx context.Context, r Request) *Call {
	c := &Call{method: r.Method, verb: r.Verb, client: r.Client, onQueued: r.onQueued, forward: r.Forward,
		binding: process.Binding{Key: r.Key, Headers: r.Headers}}
	if r.traced {
		c.traceID = tracecontext.ID(ctx)
	}
	c.ctx, c.stop = context.WithDeadline(ctx, r.Deadline)
	return c
}

// cancel ends the context of the call. The first reason that is not nil counts.
func (c *Call) cancel(reason error) {
	if reason != nil && c.ctx.Err() == nil {
		kept := reason // so that a nil reason costs no allocation
		c.reason.CompareAndSwap(nil, &kept)
	}
	c.stop()
}

// cause is why the context of the call has ended. A reason beside one context saves what context.WithCancelCause around
// it would allocate.
func (c *Call) cause() error {
	if reason := c.reason.Load(); reason != nil {
		return *reason
	}
	return context.Cause(c.ctx)
}

// Context ends when the call is completed or cancelled.
func (c *Call) Context() context.Context { return c.ctx }

// Worker is the name of the worker that serves the call.
func (c *Call) Worker() string { return c.upstream.worker }

// Incarnation is the incarnation of the worker that serves the call.
func (c *Call) Incarnation() int64 { return c.upstream.incarnation }

// label names the call in figures.
func (c *Call) label() string {
	if c.upstream.plain != nil {
		return c.verb
	}
	return c.method
}

// MaxMessage is the largest answer of the worker, in bytes.
func (c *Call) MaxMessage() int64 { return int64(c.upstream.spec.Pool.MaxMessage) }

// Plain returns the upstream of a worker of protocol none, nil for any other worker.
func (c *Call) Plain() PlainUpstream { return c.upstream.plain }

// prepare builds the request, so that the goroutine that frees a worker for the call can send it.
func (c *Call) prepare(r Request) {
	c.exchange = wire.Prepare(c.ctx, r.wire(), (*answeredCall)(c))
}

// answeredCall removes its Call from those in flight.
type answeredCall Call

// Answered implements wire.Observer.
func (a *answeredCall) Answered(err error) {
	c := (*Call)(a)
	if err != nil {
		err = c.wireError(err)
	}
	c.finish(err)
}

// AnsweredLate implements wire.Observer: the worker has given the cancelled call up. One that asks to be replaced
// must be, although the caller has left.
func (a *answeredCall) AnsweredLate(err error) {
	u := a.upstream
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	if reason := fatalReason(err); reason != "" && a.conn == u.conn && !u.byUse() { // not its successor
		u.closed[fatal] = reason
		u.reportFatalLocked()
	}
	u.openedLocked() // its slot is free
}

// Exchange sends the request, waits for the answer, and completes the call.
func (c *Call) Exchange(r Request) (*Response, error) {
	response, err := c.send(r)
	c.Complete(err)
	return response, err
}

// exchange is Exchange for Do.
func exchange(c *Call, r Request) (err error) {
	c.response, err = c.Exchange(r)
	return err
}

// send sends the request over the worker's connection, unless another goroutine has, and waits for the answer.
func (c *Call) send(r Request) (*Response, error) {
	u := c.upstream
	switch {
	case u.plain != nil:
		return u.plain.Send(c, r)
	case c.exchange == nil:
		c.prepare(r)
	}
	answer, err := c.exchange.Do(c.conn, r.OnChunk)
	if err != nil {
		return nil, c.wireError(err)
	}
	return &Response{Worker: u.worker, Incarnation: u.incarnation, Headers: answer.Headers, Body: answer.Payload}, nil
}

// CompleteAnswered is Complete for a call whose client has its answer already, whatever the result of the call.
func (c *Call) CompleteAnswered(failure *api.Error) {
	c.mayStartAgain = false
	if failure == nil {
		c.Complete(nil)
		return
	}
	c.response = &Response{failure: failure}
	c.Complete(failure)
}

// notify sends the request as a notification and completes the call. It is for Do.
func notify(c *Call, r Request) (err error) {
	if c.conn == nil {
		err = api.Errorf(api.CodeInvalid, "%s speaks plain HTTP (protocol none), which has no notifications; call it instead",
			c.upstream.worker)
	} else if err = c.conn.Notify(c.ctx, r.wire()); err != nil {
		err = c.wireError(err)
	}
	c.Complete(err)
	return err
}

// queued reports that the call is in the queue or on a worker.
func (c *Call) queued() {
	if c.onQueued != nil {
		c.onQueued()
		c.onQueued = nil
	}
}
