package wire

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
)

// callHeader on a host call names the call that the worker is serving, as a decimal id.
const callHeader = "call"

// serveHostCall runs a host call on a goroutine of its own, or refuses it. The reader calls it.
func (c *conn) serveHostCall(id uint32, method string, headers map[string]string, payload []byte) {
	if method == CountMethod {
		c.answerHostCall(id, nil, c.counters.addHostCall(payload))
		return
	}
	if c.o.HostCall == nil {
		c.answerHostCall(id, nil, &RemoteError{Code: CodeUnsupported, Message: "this host answers no calls of its workers"})
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
		c.answerHostCall(id, nil, &RemoteError{Code: CodeBusy, Message: "too many host calls at once: wait for some to be answered"})
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

// lookupHostCall finds what a host call may act for: the call its header names, or nothing when it names none.
func (c *conn) lookupHostCall(headers map[string]string) (context.Context, map[string]string, error) {
	named, inCall := headers[callHeader]
	if !inCall {
		return c.ctx, nil, nil
	}
	id, err := strconv.ParseUint(named, 10, 32)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.lookupLocked(uint32(id))
	switch {
	case err != nil || s == nil:
		return nil, nil, &RemoteError{Code: CodeNotInCall, Message: "the call it belongs to is not in flight: make host calls before the handler returns"}
	case s.exchange == nil:
		return nil, nil, &RemoteError{Code: CodeCancelled, Message: "the call it belongs to was cancelled"}
	}
	return context.WithValue(s.ctx, callKey{}, s.ctx), maps.Clone(s.headers), nil
}

// callKey is where the context of a host call keeps that of the call it was made in.
type callKey struct{}

// CallContext returns the context of the call that a host call was made in, the same one for each of its host calls; it ends no
// later than a moment after the call. It is nil for a host call between calls.
func CallContext(ctx context.Context) context.Context {
	call, _ := ctx.Value(callKey{}).(context.Context)
	return call
}

func (c *conn) answerHostCall(id uint32, result []byte, err error) {
	answer := Frame{Type: FrameHostResult, ID: id, Payload: result}
	if err == nil && int64(len(result)) > c.o.MaxMessage {
		err = &RemoteError{Code: CodeTooLarge, Message: "the host's answer exceeds the limit of a message"}
	}
	if err != nil {
		var failure *RemoteError
		if !errors.As(err, &failure) {
			failure = &RemoteError{Code: CodeHostError, Message: err.Error()}
		}
		answer.Type = FrameHostError
		if answer.Payload, err = json.Marshal(failure); err != nil {
			answer.Payload = []byte(`{"code":"` + CodeHostError + `","message":"the host's error cannot be told as JSON"}`)
		} else if len(answer.Payload) > MaxControl {
			answer.Payload = []byte(`{"code":"` + CodeTooLarge + `","message":"the host's error is too long to be told"}`)
		}
	}
	if c.out.backlogged() > int(c.o.MaxMessage) {
		c.fail(violation("it asks its host faster than it reads the answers"))
		return
	}
	msg, err := AppendFrame(nil, answer)
	if err == nil {
		c.out.send(msg, nil) // a stream that takes no more ends the Conn by itself
	}
}
