package wire

import "context"

// pinger sends one ping at a time: concurrent Pings wait for the same pong. conn.mu guards it.
type pinger struct {
	last uint32      // id of the newest ping
	pong *pingAnswer // of the newest ping; nil while no ping is unanswered
}

// pingAnswer is the answer to one ping.
type pingAnswer struct {
	arrived chan struct{}
	failure error // nil for a pong; set before arrived is closed
}

// firstPingID is the lowest id of a ping: they are above those of calls.
const firstPingID = maxCallID

// expect has the next Ping wait for a pong, too.
func (p *pinger) expect() *pingAnswer {
	p.pong = &pingAnswer{arrived: make(chan struct{})}
	return p.pong
}

// receivePong handles the answer to a ping: a pong, or the failure of the worker's health hook. It returns false if no
// ping with this id is unanswered.
func (c *Conn) receivePong(id uint32, failure error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pong := c.ping.pong
	if pong == nil || id != c.ping.last {
		return false
	}
	pong.failure = failure
	close(pong.arrived)
	c.ping.pong = nil
	return true
}

// Ping waits for the worker's pong, and fails with a *RemoteError if a health hook of the program failed. A worker that
// runs one call at a time answers after that call. An unanswered ping does not break the Conn. Concurrent pings share
// one message.
func (c *Conn) Ping(ctx context.Context) error {
	c.mu.Lock()
	err, p := c.refusalLocked(), &c.ping
	pong := p.pong
	if err == nil && pong == nil {
		p.last = firstPingID + (p.last+1)%maxCallID
		if _, err = c.out.send(c.codec.appendPing(nil, p.last), nil); err == nil {
			pong = p.expect()
		}
	}
	c.mu.Unlock()
	if err != nil {
		return &CallError{Err: err}
	}
	select {
	case <-pong.arrived:
		return pong.failure
	case <-ctx.Done():
		return &CallError{Started: true, Err: ctx.Err()}
	case <-c.done:
		return &CallError{Started: true, Err: c.Err()}
	}
}
