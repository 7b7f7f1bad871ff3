package tempool

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// CallOptions apply to calls; see Pool.With and Lease.With. The zero value makes a call of priority 0 without a
// session, bounded by its context or, without a deadline, by the gateway's ten minutes.
type CallOptions struct {
	// Session is the session of the call. A pool's gateway sends the call to the worker that served the session last, if
	// that one is free.
	Session string
	// Key says whose call it is, in at most 256 bytes, for a pool with isolation.by = "key".
	Key string
	// Priority orders the calls that wait in a gateway's queue, 0 to 9; the highest goes first. A waiting call gains one
	// for each tenth of queue.timeout.
	Priority int
	// Timeout bounds the call, attempts and waiting included; the context's deadline does, too. With Timeout the gateway
	// reports the timeout itself, and so whether a worker may have seen the call. 0 leaves it to the context.
	Timeout time.Duration
	// Header is sent with the call. Workers see traceparent, tracestate, baggage, Content-Type, Content-Language and every
	// X- header.
	Header http.Header
	// Answered, if set, is called when a worker answers, before the answer's body is read.
	Answered func(Answer)
}

// Answer identifies the worker that answered a call.
type Answer struct {
	Worker      string
	Incarnation int64
	Endpoint    string // of the gateway
	Header      http.Header
}

const (
	// answerSlack is how much longer than CallOptions.Timeout the client waits, so that the gateway can report the
	// timeout.
	answerSlack = 5 * time.Second
	// maxCallTimeout is the longest timeout that a gateway accepts.
	maxCallTimeout = 24 * time.Hour
)

// header returns the headers of a call that starts now. A deadline that has passed is CodeDeadlineExceeded.
func (o CallOptions) header(ctx context.Context) (http.Header, error) {
	header := o.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if o.Session != "" {
		header.Set(api.HeaderSession, o.Session)
	}
	if o.Key != "" {
		header.Set(api.HeaderKey, o.Key)
	}
	if o.Priority != 0 {
		header.Set(api.HeaderPriority, strconv.Itoa(o.Priority))
	}
	timeout := o.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left <= 0 {
			return nil, transport.Error(ctx, context.DeadlineExceeded, "the deadline passed before the call was sent", false)
		}
		if timeout <= 0 || left < timeout {
			timeout = left
		}
	}
	if timeout > 0 {
		header.Set(api.HeaderTimeout, strconv.FormatInt(max(1, min(timeout, maxCallTimeout).Milliseconds()), 10))
	}
	return header, nil
}

// answered reports the answer of the gateway at endpoint to o.Answered.
func (o CallOptions) answered(endpoint string, reply *transport.Reply) {
	if o.Answered == nil {
		return
	}
	incarnation, _ := strconv.ParseInt(reply.Header.Get(api.HeaderIncarnation), 10, 64) // 0 where the gateway names none
	o.Answered(Answer{reply.Header.Get(api.HeaderWorker), incarnation, endpoint, reply.Header})
}
