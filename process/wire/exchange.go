package wire

import "context"

// Prepare makes a call ready before it is known which Conn will carry it, for queues above Conns: whoever frees a worker can hand it
// the next request at once with Begin, without waiting until the goroutine of that call runs.
//
// ended, if it is not nil, is called with the worker's answer, nil or a *RemoteError, when the call's place is free again and before
// its caller is woken. It runs on the goroutine that reads from the worker, so it must not block; it may Begin others. It is not
// called for a call whose caller has left, nor for one that the Conn's end has cut.
//
// An Exchange that was prepared is either done, by Do, once, or dropped without having been begun.
func Prepare(ctx context.Context, r Request, ended func(error)) *Exchange {
	x := exchanges.Get().(*Exchange)
	x.ctx, x.r, x.ended = ctx, r, ended
	return x
}

// Begin sends the request if c has a place free for it, on behalf of who waits for Events. It reports false when the request was
// not sent and will not be by this; then the waiter has to be told to go on with Do. It does not block.
func (x *Exchange) Begin(c Conn) bool {
	l, ok := c.(*link)
	if !ok {
		return false
	}
	x.mu.Lock()
	if x.left || x.ctx.Err() != nil || !l.enterNow(x) {
		x.mu.Unlock()
		return false
	}
	x.l = l
	err := l.sendRequest(x)
	x.mu.Unlock()
	if err != nil {
		l.fallThrough(x, err)
	}
	return true
}

// Withdraw keeps the request from being sent; it reports false when that was done already. After true there is nothing to do.
func (x *Exchange) Withdraw() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.left = !x.sent
	return x.left
}

// Events gives who waits for Begin a first piece of news, to be handed to Do.
func (x *Exchange) Events() <-chan Event { return x.events }

// Do waits for the answer: on the Conn that carries the call already, else on c, like Conn.Call (without onChunk) or Conn.Stream.
// first is what came from Events, the zero Event for nothing.
func (x *Exchange) Do(c Conn, first Event, onChunk func([]byte) error) (*Response, error) {
	x.mu.Lock()
	l := x.l
	x.mu.Unlock()
	ctx := x.ctx
	if l == nil {
		var ok bool
		if l, ok = c.(*link); !ok {
			if onChunk == nil {
				return c.Call(ctx, x.r)
			}
			return c.Stream(ctx, x.r, onChunk)
		}
		if err := l.begin(ctx, x); err != nil {
			return nil, err
		}
	}
	waiting := call{l: l, w: x, onChunk: onChunk}
	if resp, err, over := waiting.take(first); over {
		return resp, err
	}
	if first.piece {
		l.refill(x)
	}
	return waiting.wait(ctx)
}

// begin takes a place for the call and sends its request, or puts it into the Conn's own queue.
func (l *link) begin(ctx context.Context, x *Exchange) error {
	if err := ctx.Err(); err != nil {
		return &CallError{Err: err}
	}
	mine, err := l.enter(x)
	if err != nil {
		return &CallError{Err: err}
	}
	if !mine {
		return nil
	}
	x.mu.Lock()
	err = l.sendRequest(x)
	x.mu.Unlock()
	if err != nil {
		// x is not used again: a worker that answers what it was not asked could still reach it.
		l.handOver(l.withdraw(x))
	}
	return err
}
