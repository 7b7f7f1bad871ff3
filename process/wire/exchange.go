package wire

import "context"

// Prepare returns a call that has no Conn yet, for dispatchers: the goroutine that frees a worker can send the next
// request with Begin, without waiting until the goroutine of that call runs.
//
// observer may be nil.
//
// Call Do on the Exchange exactly once, or drop the Exchange if Begin was not called.
func Prepare(ctx context.Context, r Request, observer Observer) *Exchange {
	x := exchangePool.Get().(*Exchange)
	x.ctx, x.request, x.observer = ctx, r, observer
	return x
}

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

// Begin sends the request on c if fewer than MaxInflight calls are in flight, on behalf of the goroutine that waits for
// Events. It does not block. If it reports false the request was not sent; then wake that goroutine, so that it calls
// Do. A nil c, of a worker without a protocol, takes none.
func (x *Exchange) Begin(c *Conn) bool {
	if c == nil {
		return false
	}
	x.mu.Lock()
	if x.withdrawn || x.ctx.Err() != nil || !c.tryAdmit(x) {
		x.mu.Unlock()
		return false
	}
	x.conn = c
	err := c.sendRequest(x)
	x.mu.Unlock()
	if err != nil {
		c.failUnsent(x, err)
	}
	return true
}

// Withdraw prevents Begin from sending the request. It reports false if the request was sent already.
func (x *Exchange) Withdraw() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.withdrawn = !x.sent
	return x.withdrawn
}

// Events delivers the first event after Begin; pass it to Do.
func (x *Exchange) Events() <-chan Event { return x.events }

// Do waits for the response, like Conn.Call if onChunk is nil, else like Conn.Stream. Unless Begin has sent the
// request, Do sends it on c. first is the event from Events, or the zero Event.
func (x *Exchange) Do(c *Conn, first Event, onChunk func([]byte) error) (Response, error) {
	x.mu.Lock()
	target := x.conn
	x.mu.Unlock()
	ctx := x.ctx
	if target == nil {
		target = c
		if err := target.send(ctx, x); err != nil {
			return Response{}, err
		}
	}
	call := pendingCall{conn: target, exchange: x, onChunk: onChunk}
	if resp, err, over := call.handle(first); over {
		return resp, err
	}
	if first.isChunk {
		target.drainOverflow(x)
	}
	return call.wait(ctx)
}

// send sends the request, or queues it while MaxInflight calls are in flight.
func (c *Conn) send(ctx context.Context, x *Exchange) error {
	if err := ctx.Err(); err != nil {
		return &CallError{Err: err}
	}
	send, err := c.admit(x)
	if err != nil {
		return &CallError{Err: err}
	}
	if !send {
		return nil
	}
	x.mu.Lock()
	err = c.sendRequest(x)
	x.mu.Unlock()
	if err != nil {
		// x is not recycled: a faulty worker could still respond to its id.
		c.sendNext(c.releaseUnsent(x))
	}
	return err
}
