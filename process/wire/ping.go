package wire

import (
	"context"
	"sync"
)

// pinger sends one ping at a time: concurrent Pings wait for the same pong.
type pinger struct {
	mu   sync.Mutex
	last uint32        // guarded by mu: id of the newest ping
	pong chan struct{} // guarded by mu: closed by the pong; nil while no ping is unanswered
}

// firstPingID is the lowest id of a ping: they are above those of calls.
const firstPingID = maxCallID

// nextID returns the id of the next ping; p.mu is held.
func (p *pinger) nextID() uint32 {
	p.last = firstPingID + (p.last+1)%maxCallID
	return p.last
}

// unanswered reports whether a ping has no pong yet.
func (p *pinger) unanswered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pong != nil
}

// receivePong handles a pong; false if no ping with this id is unanswered.
func (p *pinger) receivePong(id uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pong == nil || id != p.last {
		return false
	}
	close(p.pong)
	p.pong = nil
	return true
}

func (c *conn) Ping(ctx context.Context) error {
	if err := c.refusal(); err != nil {
		return &CallError{Err: err}
	}
	p := &c.ping
	p.mu.Lock()
	pong := p.pong
	if pong == nil {
		pong = make(chan struct{})
		p.pong = pong
		if _, err := c.out.send(c.codec.appendPing(nil, p.nextID()), nil); err != nil {
			p.pong = nil
			p.mu.Unlock()
			return &CallError{Err: err}
		}
	}
	p.mu.Unlock()
	select {
	case <-pong:
		return nil
	case <-ctx.Done():
		return &CallError{Started: true, Err: ctx.Err()}
	case <-c.done:
		return &CallError{Started: true, Err: c.Err()}
	}
}
