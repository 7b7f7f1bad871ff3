package wire

import (
	"context"
	"sync"
)

// pinger keeps the one ping that may be unanswered: further ones wait for the same answer, which proves the same.
type pinger struct {
	mu   sync.Mutex
	last uint32        // guarded by mu: id of the newest question
	pong chan struct{} // guarded by mu: closed by the answer; nil while none is due
}

// firstPingID is above every call's id.
const firstPingID = callIDs

// nextID gives the next id of a ping; p.mu is held.
func (p *pinger) nextID() uint32 {
	p.last = firstPingID | (p.last+1)&(callIDs-1)
	return p.last
}

// answered tells whether an answer with this id was due.
func (p *pinger) answered(id uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pong == nil || id != p.last {
		return false
	}
	close(p.pong)
	p.pong = nil
	return true
}

func (l *link) Ping(ctx context.Context) error {
	p := &l.ping
	p.mu.Lock()
	pong := p.pong
	if pong == nil {
		pong = make(chan struct{})
		p.pong = pong
		if _, err := l.out.send(l.d.appendPing(nil, p.nextID()), nil); err != nil {
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
	case <-l.done:
		return &CallError{Started: true, Err: l.Err()}
	}
}
