package peer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/balance"
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
	// refusedPause is the pause after a refusal: other gateways may have been first, or a worker is leased without the
	// peer's knowledge. It doubles with each further refusal in a row, maxRefusals times.
	refusedPause = 10 * time.Millisecond
	maxRefusals  = 3
	// settleWait bounds the wait until the peer has taken what was sent: it may take long to grant a lease, or let the
	// guest wait for a worker.
	settleWait = 50 * time.Millisecond
	// maxAtOnce bounds the calls that are sent for one answer.
	maxAtOnce = 64
)

// seeker looks for free slots of one pool on other hosts while calls or clients wait: it asks each peer, and sends it
// as many as it can serve.
type seeker struct {
	peers *Peers
	pool  string
	wake  chan struct{} // of run

	// Guarded by the lock of Peers.
	followed time.Time // the newest roster
	lanes    map[api.Peer]*lane
}

// lane is what a seeker has to do with one peer.
type lane struct {
	to       api.Peer
	wake     chan struct{}
	stop     context.CancelFunc
	refusals int // in a row
}

// Waits says that a call or a client of a pool begins to wait. It does not block.
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
	sleep.Wake(s.wake)
	for _, l := range s.lanes {
		sleep.Wake(l.wake)
	}
}

// run keeps one lane to each host that has workers of the pool in service, until nobody waits any more.
func (s *seeker) run() {
	p := s.peers
	for waits := true; waits || s.awaitWaiting(); {
		waits = true // unless the roster says otherwise: else the peers known before are as good as any
		ctx, cancel := context.WithTimeout(p.life, statusTimeout)
		status, err := p.config.Status(ctx, s.pool)
		cancel()
		switch {
		case err == nil:
			s.follow(status)
			waits = p.config.Queue.Refer(status)
		case errors.Is(err, api.ErrPoolNotFound):
			waits = false
		}
		if !sleep.For(p.life.Done(), rosterFresh) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range s.lanes {
		l.stop()
	}
}

// awaitWaiting waits until a call or a client begins to wait. It ends the search if none does for lingers.
func (s *seeker) awaitWaiting() bool {
	p := s.peers
	select {
	case <-s.wake:
		return true
	case <-time.After(lingers):
	case <-p.life.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(s.wake) > 0 && !p.closed {
		return true
	}
	delete(p.seekers, s.pool)
	return false
}

// follow starts and stops lanes so that they are those of the roster.
func (s *seeker) follow(status api.PoolStatus) {
	p := s.peers
	hosts := p.serving(status)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.followed = time.Now()
	for to, l := range s.lanes {
		if !slices.Contains(hosts, to) {
			l.stop()
			delete(s.lanes, to)
		}
	}
	for _, to := range hosts {
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
		s.send(ctx, l, min(free, maxAtOnce))
	}
}

// send sends up to free calls and clients to a peer and waits until it has taken or refused them: its next answer then
// counts them. A peer that has refused one is asked again a little later.
func (s *seeker) send(ctx context.Context, l *lane, free int) {
	settled, sent, refused := make(chan bool, free), 0, false
	place := pool.Place{Peer: l.to, Settled: func(taken bool) { settled <- taken }}
	queue := s.peers.config.Queue
	// what was refused may be a client that no worker there may serve now: it does not keep calls from those workers
	for sent < free && (l.refusals > 0 && queue.Send(s.pool, false, place) || queue.Send(s.pool, true, place)) {
		sent++
	}
	late := time.After(settleWait)
	for range sent {
		select {
		case taken := <-settled:
			refused = refused || !taken
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
	if !refused {
		l.refusals = 0
		return
	}
	sleep.For(ctx.Done(), refusedPause<<l.refusals)
	l.refusals = min(l.refusals+1, maxRefusals)
}

// Serving are the peers that have workers of a pool in service, as its roster says; none while Temporal is down.
func (p *Peers) Serving(ctx context.Context, name string) []api.Peer {
	p.Waits(name) // so that the next one need not read the roster
	p.mu.Lock()
	if s := p.seekers[name]; s != nil && time.Since(s.followed) < 2*rosterFresh {
		defer p.mu.Unlock()
		return slices.Collect(maps.Keys(s.lanes))
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	status, _ := p.config.Status(ctx, name)
	return p.serving(status)
}

// serving are the other hosts that have workers in service.
func (p *Peers) serving(status api.PoolStatus) (hosts []api.Peer) {
	for _, w := range status.Workers {
		to := api.Peer{Host: w.Host, Endpoint: w.Endpoint}
		other := w.Host != p.config.HostID && w.Endpoint != "" && w.Endpoint != p.config.Endpoint()
		if other && !w.Gone && !w.Removing && w.State.InService() && !slices.Contains(hosts, to) {
			hosts = append(hosts, to)
		}
	}
	return hosts
}

// pause is the rest of a peer's backoff.
func (p *Peers) pause(to api.Peer) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.backoff[to.Endpoint]; b != nil {
		return max(b.Left(time.Now()), balance.MinBackoff/10)
	}
	return balance.MinBackoff
}
