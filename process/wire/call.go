package wire

import (
	"context"
	"sync"
	"time"
)

// buffers pools the buffers in which requests are encoded, up to maxPooledBuffer bytes each.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

const maxPooledBuffer = 64 << 10

// Call sends a request and waits for its response. It queues while MaxInflight calls are in flight. If ctx ends first,
// Call cancels the request and returns at once with ctx's error in a CallError; the request stays in flight until the
// worker responds. Call joins streamed chunks in front of the payload, up to MaxMessage bytes in all.
func (c *Conn) Call(ctx context.Context, r Request) (Response, error) {
	return Prepare(ctx, r, nil).Do(c, Event{}, nil)
}

// Stream is Call that passes the chunks to onChunk, in order, as they arrive. onChunk owns the chunk and may block.
// With MaxInflight 1 that slows the worker down; otherwise up to StreamBuffer bytes are buffered, so that other calls
// of this Conn continue, and a stream with more fails with ErrSlowReader. An error of onChunk cancels the call and is
// returned in a CallError.
func (c *Conn) Stream(ctx context.Context, r Request, onChunk func([]byte) error) (Response, error) {
	return Prepare(ctx, r, nil).Do(c, Event{}, onChunk)
}

// sendRequest sends the request; x.mu is held. Its error is a *CallError.
func (c *Conn) sendRequest(x *Exchange) error {
	timeout := int64(-1)
	if deadline, ok := x.ctx.Deadline(); ok {
		timeout = max(time.Until(deadline).Milliseconds(), 0)
	}
	buf := buffers.Get().(*[]byte)
	head, body, err := c.codec.appendRequest((*buf)[:0], x.id, x.request, timeout)
	x.sent, x.offset = true, -1
	if err == nil {
		x.offset, err = c.out.send(head, body)
	}
	if cap(head) <= maxPooledBuffer {
		*buf = head[:0]
		buffers.Put(buf)
	}
	if err == nil {
		return nil
	}
	started := x.offset >= 0 && c.out.mayHaveLeft(x.offset)
	if started {
		c.fail(err) // part of a message is in the stream, so nothing can follow it
	}
	return &CallError{Started: started, Err: err}
}

// pendingCall is the caller's side of an exchange.
type pendingCall struct {
	conn         *Conn
	exchange     *Exchange
	onChunk      func([]byte) error
	joinedChunks []byte
}

func (c *pendingCall) wait(ctx context.Context) (Response, error) {
	for {
		select {
		case e := <-c.exchange.events:
			if resp, err, over := c.handle(e); over {
				return resp, err
			}
			c.conn.drainOverflow(c.exchange)
		case <-ctx.Done():
			return c.abandon(ctx.Err())
		case <-c.conn.done:
			return c.drain(c.conn.Err())
		}
	}
}

// handle handles one event. The last result reports whether the call is over.
func (c *pendingCall) handle(e Event) (Response, error, bool) {
	if e.final {
		recycle(c.exchange)
		if e.err == nil && c.joinedChunks != nil {
			if int64(len(c.joinedChunks)+len(e.data)) > c.conn.o.MaxMessage {
				return Response{}, &CallError{Started: true, Err: ErrTooLarge}, true
			}
			e.data = append(c.joinedChunks, e.data...)
		}
		return Response{Headers: e.headers, Payload: e.data}, e.err, true
	}
	if !e.isChunk {
		return Response{}, nil, false
	}
	var err error
	if c.onChunk != nil {
		err = c.onChunk(e.data)
	} else if c.joinedChunks = append(c.joinedChunks, e.data...); int64(len(c.joinedChunks)) > c.conn.o.MaxMessage {
		err = ErrTooLarge
	}
	if err != nil {
		c.conn.abandon(c.exchange)
		c.conn.leave(c.exchange)
		return Response{}, &CallError{Started: true, Err: err}, true
	}
	return Response{}, nil, false
}

// abandon stops waiting. It returns the response if that has just arrived.
func (c *pendingCall) abandon(cause error) (Response, error) {
	switch c.conn.abandon(c.exchange) {
	case neverSent:
		c.conn.leave(c.exchange)
		return Response{}, &CallError{Err: cause}
	case cancelSent:
		c.conn.leave(c.exchange)
		return Response{}, &CallError{Started: c.conn.mayHaveStarted(c.exchange), Err: cause}
	}
	return c.drain(cause)
}

// drain handles the remaining events, since the response may be among them; otherwise the call fails with cause.
func (c *pendingCall) drain(cause error) (Response, error) {
	for {
		select {
		case e := <-c.exchange.events:
			if resp, err, over := c.handle(e); over {
				return resp, err
			}
			c.conn.drainOverflow(c.exchange)
		default:
			c.conn.leave(c.exchange)
			return Response{}, &CallError{Started: c.conn.mayHaveStarted(c.exchange), Err: cause}
		}
	}
}

// Notify sends a request without a response. It returns once the bytes are written or queued, and does not count as in
// flight.
func (c *Conn) Notify(ctx context.Context, r Request) error {
	if err := c.out.waitDrained(ctx, c.done); err != nil {
		return &CallError{Err: err}
	}
	if err := c.refusal(); err != nil {
		return &CallError{Err: err}
	}
	head, body, err := c.codec.appendNotify(nil, r)
	if err != nil {
		return &CallError{Err: err}
	}
	offset, err := c.out.send(head, body)
	if err != nil {
		return &CallError{Started: c.out.mayHaveLeft(offset), Err: err}
	}
	return nil
}
