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
	return l.exchange(ctx, r, nil)
}

func (l *link) Stream(ctx context.Context, r Request, onChunk func([]byte) error) (*Response, error) {
	return l.exchange(ctx, r, onChunk)
}

// exchange is a call from place to answer. Without onChunk, chunks are joined in front of the payload.
func (l *link) exchange(ctx context.Context, r Request, onChunk func([]byte) error) (*Response, error) {
	s, err := l.acquire(ctx)
	if err != nil {
		return nil, &CallError{Err: err}
	}
	w := waiters.Get().(*waiter)
	id, err := l.occupy(s, ctx, r, w)
	if err != nil {
		waiters.Put(w)
		l.release(s)
		return nil, &CallError{Err: err}
	}
	at, err := l.sendRequest(ctx, id, r)
	if err != nil {
		started := at >= 0 && l.out.mayHaveLeft(at)
		if started {
			// Part of a message is on the stream: whatever followed it would be misread.
			l.fail(err)
		}
		l.withdraw(s, id) // w is not used again: a worker that answers what it was not asked could still reach it
		return nil, &CallError{Started: started, Err: err}
	}
	c := call{l: l, s: s, id: id, w: w, at: at, onChunk: onChunk}
	return c.wait(ctx)
}

// sendRequest sends the request under this id; a negative place means that it could not even be put into a message.
func (l *link) sendRequest(ctx context.Context, id uint32, r Request) (int64, error) {
	timeout := int64(-1)
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline).Milliseconds(), 0)
	}
	buf := scratch.Get().(*[]byte)
	head, body, err := l.d.appendRequest((*buf)[:0], id, r, timeout)
	at := int64(-1)
	if err == nil {
		at, err = l.out.send(head, body)
	}
	if cap(head) <= scratchMax {
		*buf = head[:0]
		scratch.Put(buf)
	}
	return at, err
}

// withdraw gives back the place of a call that was not sent.
func (l *link) withdraw(s *slot, id uint32) {
	l.mu.Lock()
	mine := s.id == id
	if mine {
		s.vacate()
	}
	l.mu.Unlock()
	if mine {
		l.release(s)
	}
}

// call is one exchange that was sent and waits.
type call struct {
	l       *link
	s       *slot
	id      uint32
	w       *waiter
	at      int64 // place in the stream
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
		case <-ctx.Done():
			return c.leave(ctx.Err())
		case <-c.l.done:
			return c.drain(c.l.Err())
		}
	}
}

// take handles one event and tells whether the call is over.
func (c *call) take(e event) (*Response, error, bool) {
	if e.final {
		waiters.Put(c.w)
		if e.err == nil && c.joined != nil {
			if int64(len(c.joined)+len(e.resp.Payload)) > c.l.o.MaxMessage {
				return nil, &CallError{Started: true, Err: ErrTooLarge}, true
			}
			e.resp.Payload = append(c.joined, e.resp.Payload...)
		}
		return e.resp, e.err, true
	}
	var err error
	if c.onChunk != nil {
		err = c.onChunk(e.chunk)
	} else if c.joined = append(c.joined, e.chunk...); int64(len(c.joined)) > c.l.o.MaxMessage {
		err = ErrTooLarge
	}
	if err != nil {
		c.l.abandon(c.s, c.id)
		close(c.w.gone)
		return nil, &CallError{Started: true, Err: err}, true
	}
	return nil, nil, false
}

// leave cancels the call and returns at once, with the answer if it has come in the same moment.
func (c *call) leave(cause error) (*Response, error) {
	if c.l.abandon(c.s, c.id) {
		close(c.w.gone)
		return nil, &CallError{Started: c.l.out.mayHaveLeft(c.at), Err: cause}
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
		default:
			close(c.w.gone)
			return nil, &CallError{Started: c.l.out.mayHaveLeft(c.at), Err: cause}
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
