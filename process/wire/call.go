package wire

import (
	"context"
	"sync"
	"time"
)

// scratch keeps the buffers that messages are put together in; larger ones than scratchMax bytes are not kept.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

const scratchMax = 64 << 10

func (l *link) Call(ctx context.Context, r Request) (*Response, error) {
	return Prepare(ctx, r, nil).Do(l, Event{}, nil)
}

func (l *link) Stream(ctx context.Context, r Request, onChunk func([]byte) error) (*Response, error) {
	return Prepare(ctx, r, nil).Do(l, Event{}, onChunk)
}

// sendRequest sends the call's request, with w.mu held. Its error is a *CallError.
func (l *link) sendRequest(w *Exchange) error {
	timeout := int64(-1)
	if deadline, ok := w.ctx.Deadline(); ok {
		timeout = max(time.Until(deadline).Milliseconds(), 0)
	}
	buf := scratch.Get().(*[]byte)
	head, body, err := l.d.appendRequest((*buf)[:0], w.id, w.r, timeout)
	w.sent, w.at = true, -1
	if err == nil {
		w.at, err = l.out.send(head, body)
	}
	if cap(head) <= scratchMax {
		*buf = head[:0]
		scratch.Put(buf)
	}
	if err == nil {
		return nil
	}
	started := w.at >= 0 && l.out.mayHaveLeft(w.at)
	if started {
		l.fail(err) // part of a message is on the stream: whatever followed it would be misread
	}
	return &CallError{Started: started, Err: err}
}

// call is one exchange as its caller sees it.
type call struct {
	l       *link
	w       *Exchange
	onChunk func([]byte) error
	joined  []byte
}

func (c *call) wait(ctx context.Context) (*Response, error) {
	for {
		select {
		case e := <-c.w.events:
			if resp, err, over := c.take(e); over {
				return resp, err
			}
			c.l.refill(c.w)
		case <-ctx.Done():
			return c.leave(ctx.Err())
		case <-c.l.done:
			return c.drain(c.l.Err())
		}
	}
}

// take handles one event and tells whether the call is over.
func (c *call) take(e Event) (*Response, error, bool) {
	if e.final {
		recycle(c.w)
		if e.err == nil && c.joined != nil {
			if int64(len(c.joined)+len(e.resp.Payload)) > c.l.o.MaxMessage {
				return nil, &CallError{Started: true, Err: ErrTooLarge}, true
			}
			e.resp.Payload = append(c.joined, e.resp.Payload...)
		}
		return e.resp, e.err, true
	}
	if !e.piece {
		return nil, nil, false
	}
	var err error
	if c.onChunk != nil {
		err = c.onChunk(e.chunk)
	} else if c.joined = append(c.joined, e.chunk...); int64(len(c.joined)) > c.l.o.MaxMessage {
		err = ErrTooLarge
	}
	if err != nil {
		c.l.leave(c.w)
		close(c.w.gone)
		return nil, &CallError{Started: true, Err: err}, true
	}
	return nil, nil, false
}

// leave ends the waiting at once, with the answer if it has come in the same moment.
func (c *call) leave(cause error) (*Response, error) {
	switch c.l.leave(c.w) {
	case unstarted:
		close(c.w.gone)
		return nil, &CallError{Err: cause}
	case abandoned:
		close(c.w.gone)
		return nil, &CallError{Started: c.l.started(c.w), Err: cause}
	}
	return c.drain(cause)
}

// drain takes what came before the call ended, for a response may be among it; cause is the failure if none is.
func (c *call) drain(cause error) (*Response, error) {
	for {
		select {
		case e := <-c.w.events:
			if resp, err, over := c.take(e); over {
				return resp, err
			}
			c.l.refill(c.w)
		default:
			close(c.w.gone)
			return nil, &CallError{Started: c.l.started(c.w), Err: cause}
		}
	}
}

func (l *link) Notify(ctx context.Context, r Request) error {
	if err := l.out.waitClear(ctx, l.done); err != nil {
		return &CallError{Err: err}
	}
	if err := l.Err(); err != nil {
		return &CallError{Err: err}
	}
	head, body, err := l.d.appendNotify(nil, r)
	if err != nil {
		return &CallError{Err: err}
	}
	at, err := l.out.send(head, body)
	if err != nil {
		return &CallError{Started: l.out.mayHaveLeft(at), Err: err}
	}
	return nil
}
