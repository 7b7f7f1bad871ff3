package wire

import (
	"context"
	"sync"
	"time"
)

// buffers pools the buffers in which requests are encoded, up to maxPooledBuffer bytes each.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

const maxPooledBuffer = 64 << 10

// Call sends a request and waits for its response. It waits its turn while MaxInflight calls are in flight. If ctx ends
// first, Call cancels the request and returns at once with ctx's error in a CallError; the request stays in flight
// until the worker responds. Call joins streamed chunks in front of the payload, up to MaxMessage bytes in all.
func (c *Conn) Call(ctx context.Context, r Request) (Response, error) {
	return Prepare(ctx, r, nil).Do(c, nil)
}

// Exchange is a call as its caller and the reader share it.
type Exchange struct {
	ctx      context.Context
	request  Request
	observer Observer // may be nil
	inbox
	cancelTimer *time.Timer // guarded by conn.mu: runs from the cancel to the response

	// mu is held while any goroutine sends the request, so that the caller cannot return and change it.
	mu        sync.Mutex
	withdrawn bool   // guarded by mu: must not be sent any more
	conn      *Conn  // guarded by mu until it is set, which is before the request is sent
	id        uint32 // in conn.calls
	offset    int64  // guarded by mu: of the request in the stream; negative if it could not be encoded
}

var exchangePool = sync.Pool{New: func() any { return &Exchange{inbox: inbox{ready: make(chan struct{}, 1)}} }}

// Observer receives the response to an Exchange, on the goroutine that reads from the worker: it must not block, and
// may call Begin on other Exchanges. It receives none once the Conn has ended. It is an interface, not a function, so
// that a call needs no closure.
type Observer interface {
	// Answered is called with nil or the *RemoteError of the response, when the call no longer counts as in flight, and
	// before its caller wakes.
	Answered(err error)
	// AnsweredLate is called in its place if the caller has stopped waiting.
	AnsweredLate(err error)
}

// Prepare returns a call that has no Conn yet, for dispatchers: the goroutine that frees a worker can send the next
// request with Begin, without waiting until the goroutine of that call runs. observer may be nil.
//
// Call Do on the Exchange exactly once, or drop the Exchange if Begin was not called.
func Prepare(ctx context.Context, r Request, observer Observer) *Exchange {
	x := exchangePool.Get().(*Exchange)
	x.ctx, x.request, x.observer = ctx, r, observer
	return x
}

// recycle returns an exchange to the pool. Its final event must have been taken: then no other goroutine uses it,
// except that the sender may not have unlocked mu yet.
func (x *Exchange) recycle() {
	select {
	case <-x.ready: // a wake-up for more than one event
	default:
	}
	x.mu.Lock()
	x.ctx, x.request, x.observer, x.events, x.withdrawn, x.conn = nil, Request{}, nil, nil, false, nil
	x.mu.Unlock()
	exchangePool.Put(x)
}

// Begin sends the request on c if fewer than MaxInflight calls are in flight, on behalf of the goroutine that waits for
// Ready. It does not block. If it reports false the request was not sent; then wake that goroutine, so that it calls
// Do. A nil c, of a worker without a protocol, takes none.
func (x *Exchange) Begin(c *Conn) bool {
	if c == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.withdrawn || x.ctx.Err() != nil {
		return false
	}
	select {
	case c.places <- struct{}{}:
		return x.send(c) == nil
	default:
		return false
	}
}

// Withdraw prevents Begin from sending the request. It reports false if the request was sent already.
func (x *Exchange) Withdraw() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.withdrawn = x.conn == nil
	return x.withdrawn
}

// Ready has a token when there is something for Do to handle after Begin.
func (x *Exchange) Ready() <-chan struct{} { return x.ready }

// Do waits for the response, like Conn.Call. Unless Begin has sent the request, Do sends it on c.
//
// If onChunk is not nil, Do passes the chunks to it, in order, as they arrive, the first one with the content type of
// the stream if the worker says it. onChunk owns the chunk and may block.
// With MaxInflight 1 that slows the worker down; otherwise up to streamBuffer bytes are buffered, so that other calls
// of the Conn continue, and a stream with more fails with ErrSlowReader. An error of onChunk cancels the call and is
// returned in a CallError.
func (x *Exchange) Do(c *Conn, onChunk func(chunk []byte, contentType string) error) (Response, error) {
	x.mu.Lock()
	begun := x.conn != nil
	x.mu.Unlock()
	if begun {
		x.wake() // whoever waited for Ready may have the token
	} else if err := x.sendInTurn(c); err != nil {
		return Response{}, &CallError{Err: err}
	}
	var joined []byte // the chunks so far, if nobody takes them
	for {
		select {
		case <-x.ready:
		case <-x.ctx.Done():
			if !x.answered() {
				return x.leave(x.ctx.Err())
			}
		}
		e, err := x.take()
		switch {
		case e.isChunk && onChunk != nil:
			err = onChunk(e.data, e.kind)
		case int64(len(joined)+len(e.data)) > x.conn.o.MaxMessage:
			err = ErrTooLarge
		case e.isChunk:
			joined = append(joined, e.data...)
		case e.final:
			x.recycle()
			if joined != nil && e.err == nil {
				e.data = append(joined, e.data...)
			}
			return Response{Headers: e.headers, Payload: e.data}, e.err
		}
		if err != nil {
			return x.leave(err)
		}
	}
}

// leave stops waiting because of err, and cancels the call if it is in flight.
func (x *Exchange) leave(err error) (Response, error) {
	x.mu.Lock() // waits for Begin, which may still be sending
	defer x.mu.Unlock()
	x.conn.mu.Lock()
	x.conn.leaveLocked(x)
	x.ctx, x.request = nil, Request{} // the worker's response may take a while
	x.conn.mu.Unlock()
	return Response{}, &CallError{Started: x.mayHaveLeft(), Err: err}
}

// sendInTurn sends the request as soon as fewer than MaxInflight calls are in flight.
func (x *Exchange) sendInTurn(c *Conn) error {
	if err := x.ctx.Err(); err != nil {
		return err
	}
	select {
	case c.places <- struct{}{}: // in the usual case without the others
	default:
		select {
		case c.places <- struct{}{}:
		case <-x.ctx.Done():
			return x.ctx.Err()
		case <-c.done:
			return c.Err()
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.send(c)
}

// send sends the request, for which there is a token in c.places; x.mu is held. It fails if c takes no call. A failure
// to send is the end of the call, unless the worker has responded to a request that it did not get.
func (x *Exchange) send(c *Conn) error {
	if err := c.register(x); err != nil {
		return err
	}
	timeout := int64(-1)
	if deadline, ok := x.ctx.Deadline(); ok {
		timeout = max(time.Until(deadline).Milliseconds(), 0)
	}
	buf := buffers.Get().(*[]byte)
	head, body, err := c.codec.encode((*buf)[:0], x.id, x.request, timeout)
	x.offset = -1
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
	started := x.mayHaveLeft()
	if started {
		c.fail(err) // part of a message is in the stream, so nothing can follow it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[x.id] == x {
		c.releaseLocked(x)
		c.pushLocked(x, event{err: &CallError{Started: started, Err: err}, final: true})
	}
	return nil
}

// mayHaveLeft reports whether any byte of the request may have reached the worker; x.mu is held.
func (x *Exchange) mayHaveLeft() bool { return x.offset >= 0 && x.conn.out.mayHaveLeft(x.offset) }

// Notify sends a request without a response. It returns once the bytes are written or queued, and does not count as in
// flight.
func (c *Conn) Notify(ctx context.Context, r Request) error {
	if err := c.out.waitDrained(ctx, c.done); err != nil {
		return &CallError{Err: err}
	}
	if err := c.refusal(); err != nil {
		return &CallError{Err: err}
	}
	head, body, err := c.codec.encode(nil, 0, r, -1)
	if err != nil {
		return &CallError{Err: err}
	}
	offset, err := c.out.send(head, body)
	if err != nil {
		return &CallError{Started: c.out.mayHaveLeft(offset), Err: err}
	}
	return nil
}
