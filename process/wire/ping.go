package wire

import (
	"context"
	"sync"
)

// pinger sends one ping at a time: concurrent Pings wait for the same pong.
type pinger struct {
	mu   sync.Mutex
	last uint32      // guarded by mu: id of the newest ping
	pong *pingAnswer // guarded by mu: of the newest ping; nil while no ping is unanswered
}

// pingAnswer is the answer to one ping.
type pingAnswer struct {
	arrived chan struct{}
	failure error // nil for a pong; set before arrived is closed
}

// firstPingID is the lowest id of a ping: they are above those of calls.
const firstPingID = maxCallID

// nextID returns the id of the next ping; p.mu is held.
func (p *pinger) nextID() uint32 {
	p.last = firstPingID + (p.last+1)%maxCallID
	return p.last
}

// expect has the next Ping wait for a pong, too; p.mu is held, or the Conn has not started.
func (p *pinger) expect() *pingAnswer {
	p.pong = &pingAnswer{arrived: make(chan struct{})}
	return p.pong
}

// receive handles the answer to a ping: a pong, or the failure of the worker's health hook. It returns false if no ping
// with this id is unanswered.
func (p *pinger) receive(id uint32, failure error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pong == nil || id != p.last {
		return false
	}
	p.pong.failure = failure
	close(p.pong.arrived)
	p.pong = nil
	return true
}

// Ping waits for the worker's pong, and fails with a *RemoteError if a health hook of the program failed. A worker that
// runs one call at a time answers after that call. An unanswered ping does not break the Conn. Concurrent pings share
// one message.
func (c *Conn) Ping(ctx context.Context) error {
	if err := c.refusal(); err != nil {
		return &CallError{Err: err}
	}
	p := &c.ping
	p.mu.Lock()
	pong := p.pong
	if pong == nil {
		pong = p.expect()
		if _, err := c.out.send(c.codec.appendPing(nil, p.nextID()), nil); err != nil {
			p.pong = nil
			p.mu.Unlock()
			return &CallError{Err: err}
		}
	}
	p.mu.Unlock()
	select {
	case <-pong.arrived:
		return pong.failure
	case <-ctx.Done():
		return &CallError{Started: true, Err: ctx.Err()}
	case <-c.done:
		return &CallError{Started: true, Err: c.Err()}
	}
}
