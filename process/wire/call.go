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
	return Prepare(ctx, r, nil).Do(c, Event{}, nil)
}

// Exchange is a call as its caller and the reader share it.
type Exchange struct {
	ctx      context.Context
	request  Request
	observer Observer // may be nil
	// events are chunks and the end of the call. If it is full, the reader, and through it the worker, waits with
	// MaxInflight 1; otherwise further events go to the overflow.
	events    chan Event
	abandoned chan struct{} // closed by a caller that returns without the final event
	overflow  overflow      // guarded by conn.mu
	joined    []byte        // of the caller: the chunks so far, if nobody takes them

	// mu is held while any goroutine sends the request, so that the caller cannot return and change it.
	mu        sync.Mutex
	withdrawn bool       // guarded by mu: must not be sent any more
	conn      *Conn      // guarded by mu until it is set, which is before the request is sent
	call      *callEntry // of conn
	id        uint32     // of call
	offset    int64      // guarded by mu: of the request in the stream; negative if it could not be encoded
}

// Event is a chunk, the end of a call, or only a wake-up. Callers pass it to Do.
type Event struct {
	data    []byte            // a chunk, or the payload of the response
	headers map[string]string // of the response
	kind    string            // content type of the stream, with its first chunk; "" for none
	err     error
	isChunk bool // data may be empty
	final   bool
}

// eventQueue is the capacity of a caller's channel.
const eventQueue = 8

var exchangePool = sync.Pool{New: func() any {
	return &Exchange{events: make(chan Event, eventQueue), abandoned: make(chan struct{})}
}}

// Observer receives the response to an Exchange before its caller does. It is an interface, not a function, so that a
// call needs no closure.
type Observer interface {
	// Answered is called with nil or the *RemoteError of the response, when the call no longer counts as in flight, and
	// before its caller wakes. It runs on the goroutine that reads from the worker: it must not block, and may call Begin
	// on other Exchanges. It is not called if the caller has stopped waiting or the Conn has ended.
	Answered(err error)
}

// LateObserver is an Observer that also receives the response to an Exchange whose caller has stopped waiting.
type LateObserver interface {
	// AnsweredLate is called with nil or the error of the response in place of Answered, by the same rules.
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

// recycle returns an exchange to the pool. Its final event must have been received: then no other goroutine uses it,
// except that the sender may not have unlocked mu yet.
func (x *Exchange) recycle() {
	x.mu.Lock()
	x.ctx, x.request, x.observer, x.overflow, x.joined = nil, Request{}, nil, overflow{}, nil
	x.withdrawn, x.conn, x.call, x.id, x.offset = false, nil, nil, 0, -1
	x.mu.Unlock()
	exchangePool.Put(x)
}

// Begin sends the request on c if fewer than MaxInflight calls are in flight, on behalf of the goroutine that waits for
// Events. It does not block. If it reports false the request was not sent; then wake that goroutine, so that it calls
// Do. A nil c, of a worker without a protocol, takes none.
func (x *Exchange) Begin(c *Conn) bool {
	if c == nil {
		return false
	}
	x.mu.Lock()
	if x.withdrawn || x.ctx.Err() != nil {
		x.mu.Unlock()
		return false
	}
	var err error
	select {
	case call := <-c.free:
		err = c.take(call, x)
	default:
		err = errNoPlace
	}
	if err != nil {
		x.mu.Unlock()
		return false
	}
	answered, err := x.send()
	x.mu.Unlock()
	if err != nil && !answered {
		c.deliver(x, Event{err: err, final: true})
	}
	return true
}

// Withdraw prevents Begin from sending the request. It reports false if the request was sent already.
func (x *Exchange) Withdraw() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.withdrawn = x.conn == nil
	return x.withdrawn
}

// Events delivers the first event after Begin; pass it to Do.
func (x *Exchange) Events() <-chan Event { return x.events }

// Do waits for the response, like Conn.Call. Unless Begin has sent the request, Do sends it on c. first is the event
// from Events, or the zero Event.
//
// If onChunk is not nil, Do passes the chunks to it, in order, as they arrive, the first one with the content type of
// the stream if the worker says it. onChunk owns the chunk and may block.
// With MaxInflight 1 that slows the worker down; otherwise up to streamBuffer bytes are buffered, so that other calls
// of the Conn continue, and a stream with more fails with ErrSlowReader. An error of onChunk cancels the call and is
// returned in a CallError.
func (x *Exchange) Do(c *Conn, first Event, onChunk func(chunk []byte, contentType string) error) (Response, error) {
	x.mu.Lock()
	begun := x.conn != nil
	x.mu.Unlock()
	if !begun {
		if err := x.sendInTurn(c); err != nil {
			return Response{}, err // x is not recycled: a faulty worker could still respond to its id
		}
	}
	if begun {
		if resp, err, over := x.handle(first, onChunk); over {
			return resp, err
		}
	}
	for !x.conn.broken.Load() {
		select {
		case e := <-x.events:
			if resp, err, over := x.handle(e, onChunk); over {
				return resp, err
			}
		case <-x.ctx.Done():
			return x.abandon(onChunk)
		}
	}
	return x.drain(x.conn.Err(), onChunk)
}

// sendInTurn sends the request as soon as fewer than MaxInflight calls are in flight. Its error is a *CallError.
func (x *Exchange) sendInTurn(c *Conn) error {
	if err := x.ctx.Err(); err != nil {
		return &CallError{Err: err}
	}
	var call *callEntry
	select {
	case call = <-c.free: // in the usual case without the others
	default:
		select {
		case call = <-c.free:
		case <-x.ctx.Done():
			return &CallError{Err: x.ctx.Err()}
		case <-c.done:
			return &CallError{Err: c.Err()}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := c.take(call, x); err != nil {
		return &CallError{Err: err}
	}
	_, err := x.send()
	return err
}

// send sends the request, and gives up its place if that fails; x.mu is held. Its error is a *CallError. answered says
// that the worker has responded to a request that it did not get: the final event is there or about to be.
func (x *Exchange) send() (answered bool, err error) {
	c, timeout := x.conn, int64(-1)
	if deadline, ok := x.ctx.Deadline(); ok {
		timeout = max(time.Until(deadline).Milliseconds(), 0)
	}
	buf := buffers.Get().(*[]byte)
	head, body, err := c.codec.appendRequest((*buf)[:0], x.id, x.request, timeout)
	x.offset = -1
	if err == nil {
		x.offset, err = c.out.send(head, body)
	}
	if cap(head) <= maxPooledBuffer {
		*buf = head[:0]
		buffers.Put(buf)
	}
	if err == nil {
		return false, nil
	}
	started := x.mayHaveLeft()
	if started {
		c.fail(err) // part of a message is in the stream, so nothing can follow it
	}
	c.mu.Lock()
	if answered = x.call.id != x.id; !answered {
		c.releaseLocked(x.call)
	}
	c.mu.Unlock()
	return answered, &CallError{Started: started, Err: err}
}

// mayHaveLeft reports whether any byte of the request may have reached the worker; x.mu is held.
func (x *Exchange) mayHaveLeft() bool { return x.offset >= 0 && x.conn.out.mayHaveLeft(x.offset) }

// handle handles one event. The last result reports whether the call is over.
func (x *Exchange) handle(e Event, onChunk func(chunk []byte, contentType string) error) (Response, error, bool) {
	most := x.conn.o.MaxMessage
	if e.final {
		if e.err == nil && x.joined != nil {
			if int64(len(x.joined)+len(e.data)) > most {
				e.data, e.err = nil, &CallError{Started: true, Err: ErrTooLarge}
			} else {
				e.data = append(x.joined, e.data...)
			}
		}
		x.recycle()
		return Response{Headers: e.headers, Payload: e.data}, e.err, true
	}
	var err error
	if e.isChunk && onChunk != nil {
		err = onChunk(e.data, e.kind)
	} else if x.joined = append(x.joined, e.data...); int64(len(x.joined)) > most {
		err = ErrTooLarge
	}
	if err != nil {
		x.conn.abandon(x)
		x.conn.leave(x)
		return Response{}, &CallError{Started: true, Err: err}, true
	}
	x.conn.drainOverflow(x)
	return Response{}, nil, false
}

// abandon stops waiting, since ctx has ended. It returns the response if that has just arrived.
func (x *Exchange) abandon(onChunk func(chunk []byte, contentType string) error) (Response, error) {
	x.mu.Lock() // waits for Begin, which may still be sending
	answered := x.conn.abandon(x)
	started := x.mayHaveLeft()
	x.mu.Unlock()
	if answered {
		return x.drain(x.ctx.Err(), onChunk)
	}
	x.conn.leave(x)
	return Response{}, &CallError{Started: started, Err: x.ctx.Err()}
}

// drain handles the remaining events, since the response may be among them; otherwise the call fails with cause.
func (x *Exchange) drain(cause error, onChunk func(chunk []byte, contentType string) error) (Response, error) {
	for {
		select {
		case e := <-x.events:
			if resp, err, over := x.handle(e, onChunk); over {
				return resp, err
			}
		default:
			x.conn.leave(x)
			x.mu.Lock()
			defer x.mu.Unlock()
			return Response{}, &CallError{Started: x.mayHaveLeft(), Err: cause}
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
