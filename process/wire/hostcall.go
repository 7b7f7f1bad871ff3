package wire

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// callHeader on a host call is the id of the call that the worker is serving, in decimal.
const callHeader = "call"

// serveHostCall runs a host call on its own goroutine, or rejects it. The reader calls it.
func (c *Conn) serveHostCall(id uint32, method string, headers map[string]string, payload []byte) {
	if method == CountMethod {
		c.answerHostCall(id, nil, c.counters.addHostCall(payload))
		return
	}
	if c.o.HostCall == nil {
		c.answerHostCall(id, nil, &RemoteError{Code: CodeUnsupported, Message: "this host supports no host calls"})
		return
	}
	ctx, headers, err := c.lookupHostCall(headers)
	if err != nil {
		c.answerHostCall(id, nil, err)
		return
	}
	select {
	case c.hostCalls <- struct{}{}:
	default:
		c.answerHostCall(id, nil, &RemoteError{Code: CodeBusy,
			Message: "too many concurrent host calls; wait for some to finish"})
		return
	}
	c.goroutines.Go(func() {
		defer func() { <-c.hostCalls }()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.ctx, cancel)()
		result, err := c.o.HostCall(ctx, method, headers, payload)
		c.answerHostCall(id, result, err)
	})
}

// lookupHostCall returns the context and headers of the call that a host call belongs to; no headers if it belongs to
// none.
func (c *Conn) lookupHostCall(headers map[string]string) (context.Context, map[string]string, error) {
	named, inCall := headers[callHeader]
	if !inCall {
		return c.ctx, nil, nil
	}
	id, err := strconv.ParseUint(named, 10, 32)
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.calls[uint32(id)]
	switch {
	case err != nil || x == nil:
		return nil, nil, &RemoteError{Code: CodeNotInCall,
			Message: "its call is not in flight; make host calls before the handler returns"}
	case x.left:
		return nil, nil, &RemoteError{Code: CodeCancelled, Message: "its call was cancelled"}
	}
	return context.WithValue(x.ctx, callKey{}, x.ctx), x.request.Trace.in(x.request.Headers), nil
}

// callKey is the context key of the call that a host call belongs to.
type callKey struct{}

// CallContext returns the context of the call that a host call belongs to, the same for all host calls of that call; it
// ends no later than shortly after the call. It is nil for a host call outside of calls.
func CallContext(ctx context.Context) context.Context {
	call, _ := ctx.Value(callKey{}).(context.Context)
	return call
}

func (c *Conn) answerHostCall(id uint32, result []byte, err error) {
	answer := Frame{Type: FrameHostResult, ID: id, Payload: result}
	if err == nil && int64(len(result)) > c.o.MaxMessage {
		err = &RemoteError{Code: CodeTooLarge, Message: "the host's result exceeds the limit of a message"}
	}
	if err != nil {
		failure, ok := errors.AsType[*RemoteError](err)
		if !ok {
			failure = &RemoteError{Code: CodeHostError, Message: err.Error()}
		}
		answer.Type = FrameHostError
		if answer.Payload, err = json.Marshal(failure); err != nil {
			answer.Payload = []byte(`{"code":"` + CodeHostError + `","message":"the host's error cannot be encoded as JSON"}`)
		} else if len(answer.Payload) > MaxControl {
			answer.Payload = []byte(`{"code":"` + CodeTooLarge + `","message":"the host's error is too long"}`)
		}
	}
	if c.out.backlogged() > int(c.o.MaxMessage) {
		c.fail(violation("it sends host calls faster than it reads the results"))
		return
	}
	msg, err := AppendFrame(nil, answer)
	if err == nil {
		c.out.send(msg, nil) // if this fails, the Conn ends
	}
}

// UnhealthyMethod is the notification with which a worker reports itself unhealthy; its payload is {"reason": "…"}.
const UnhealthyMethod = "worker.unhealthy"

// notified handles a notification of the worker. The host drops those that it does not know, as workers do.
func (c *Conn) notified(method string, payload []byte) error {
	if method != UnhealthyMethod {
		return nil
	}
	var report struct {
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(payload, &report); err != nil {
		return violation("an invalid notification %s: %v", UnhealthyMethod, err)
	}
	if c.o.OnUnhealthy != nil {
		c.o.OnUnhealthy(strings.ToValidUTF8(report.Reason[:min(len(report.Reason), MaxReason)], ""))
	}
	return nil
}
