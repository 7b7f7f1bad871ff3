package peer

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// slotsWait is how long a peer is asked to wait for a free slot, in one request.
	slotsWait = 5 * time.Second
	// rosterFresh is the age at which a pool's roster is read again while calls wait. A search ends when none has waited
	// for lingers.
	rosterFresh   = 2 * time.Second
	lingers       = 30 * time.Second
	statusTimeout = 5 * time.Second
	// refusedPause is the pause after a refusal: other gateways may have been first.
	refusedPause = 10 * time.Millisecond
	// maxAtOnce bounds the calls that are sent for one answer.
	maxAtOnce = 64
)

// Queue has the calls that wait on this host; pool.Dispatcher is one.
type Queue interface {
	// SendElsewhere sends the first call that may leave to a place.
	SendElsewhere(pool string, to pool.Place) bool
	// HasWorkers reports whether a worker of the pool lives on this host, and MayLeave whether calls wait that may leave.
	HasWorkers(pool string) bool
	MayLeave(pool string) bool
}

// seeker looks for free slots of one pool on other hosts while calls wait: it asks each peer, and sends it as many
// calls as it can start.
type seeker struct {
	peers *Peers
	pool  string
	wake  chan struct{} // of run

	// Guarded by the lock of Peers.
	last  time.Time // when a call last began to wait
	lanes map[api.Peer]*lane
}

// lane is what a seeker has to do with one peer.
type lane struct {
	to   api.Peer
	wake chan struct{}
	stop context.CancelFunc
}

// Waits says that a call of a pool begins to wait. It does not block.
func (p *Peers) Waits(pool string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	s := p.seekers[pool]
	if s == nil {
		s = &seeker{peers: p, pool: pool, wake: make(chan struct{}, 1), lanes: make(map[api.Peer]*lane)}
		p.seekers[pool] = s
		p.work.Go(s.run)
	}
	s.last = time.Now()
	sleep.Wake(s.wake)
	for _, l := range s.lanes {
		sleep.Wake(l.wake)
	}
}

// run keeps one lane to each host that has workers of the pool in service.
func (s *seeker) run() {
	p := s.peers
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ctx, cancel := context.WithTimeout(p.life, statusTimeout)
		status, err := p.config.Status(ctx, s.pool)
		cancel()
		if err == nil { // else the peers known before are as good as any
			s.follow(status)
		}
		if !sleep.For(p.life.Done(), rosterFresh) {
			break
		}
		timer.Reset(lingers)
		select {
		case <-s.wake:
			continue
		case <-timer.C:
		case <-p.life.Done():
		}
		p.mu.Lock()
		if time.Since(s.last) >= lingers || p.closed {
			delete(p.seekers, s.pool)
			p.mu.Unlock()
			break
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range s.lanes {
		l.stop()
	}
}

// follow starts and stops lanes so that they are those of the roster.
func (s *seeker) follow(status api.PoolStatus) {
	p := s.peers
	hosts := make(map[api.Peer]bool)
	for _, w := range status.Workers {
		if w.Endpoint != "" && w.Host != p.config.HostID && !w.Gone && !w.Removing && w.State.InService() {
			hosts[api.Peer{Host: w.Host, Endpoint: w.Endpoint}] = true
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for to, l := range s.lanes {
		if !hosts[to] {
			l.stop()
			delete(s.lanes, to)
		}
	}
	for to := range hosts {
		if s.lanes[to] == nil && !p.closed {
			ctx, stop := context.WithCancel(p.life)
			l := &lane{to: to, wake: make(chan struct{}, 1), stop: stop}
			s.lanes[to] = l
			p.work.Go(func() { s.serve(ctx, l) })
		}
	}
}

// serve sends calls to one peer whenever it has free slots, until ctx ends.
func (s *seeker) serve(ctx context.Context, l *lane) {
	defer l.stop()
	p := s.peers
	for ctx.Err() == nil {
		if !p.config.Queue.MayLeave(s.pool) {
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			continue
		}
		free, err := p.slots(ctx, l.to, s.pool, slotsWait, !p.config.Queue.HasWorkers(s.pool))
		if err != nil {
			if ctx.Err() == nil {
				p.failed(l.to, err)
				sleep.For(ctx.Done(), p.pause(l.to))
			}
			continue
		}
		s.send(ctx, l.to, min(free, maxAtOnce))
	}
}

// send sends up to free calls to a peer and waits until it has taken or refused them: its next answer then counts them.
// A peer that has refused a call is asked again a little later.
func (s *seeker) send(ctx context.Context, to api.Peer, free int) {
	settled, sent, refused := make(chan bool, free), 0, false
	place := pool.Place{Peer: to, Settled: func(taken bool) { settled <- taken }}
	for sent < free && s.peers.config.Queue.SendElsewhere(s.pool, place) {
		sent++
	}
	for range sent {
		select {
		case taken := <-settled:
			refused = refused || !taken
		case <-ctx.Done():
			return
		}
	}
	if refused {
		sleep.For(ctx.Done(), refusedPause)
	}
}

// pause is how long a peer is still left alone.
func (p *Peers) pause(to api.Peer) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.health[to.Endpoint]; h != nil {
		return max(time.Until(h.until), minBackoff/10)
	}
	return minBackoff
}
