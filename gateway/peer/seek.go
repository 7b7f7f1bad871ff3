package peer

import (
	"context"
	"errors"
	"math/rand/v2"
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
	// clientPace is the time between two clients whose leases on a host that does not answer are asked of Temporal. It
	// doubles as refusedPause does.
	clientPace = 500 * time.Millisecond
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
	roster   api.PoolStatus // the newest one
	followed time.Time
	lanes    map[api.Peer]*lane
}

// lane is what a seeker has to do with one peer.
type lane struct {
	to       api.Peer
	wake     chan struct{}
	stop     context.CancelFunc
	refusals int       // in a row
	leaseAt  time.Time // the earliest time for the next lease
	workers  []string  // in service there, guarded by the lock of Peers
}

// Waits says that a call or a client of a pool begins to wait. It does not block.
func (p *Peers) Waits(pool string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
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
	if len(s.wake) > 0 && p.life.Err() == nil {
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
	s.roster, s.followed = status, time.Now()
	for to, l := range s.lanes {
		if hosts[to] == nil {
			l.stop()
			delete(s.lanes, to)
		}
	}
	for to, workers := range hosts {
		if s.lanes[to] == nil && p.life.Err() == nil {
			ctx, stop := context.WithCancel(p.life)
			l := &lane{to: to, wake: make(chan struct{}, 1), stop: stop, workers: workers}
			s.lanes[to] = l
			p.work.Go(func() { s.serve(ctx, l) })
		} else if l := s.lanes[to]; l != nil {
			l.workers = workers
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
				s.lease(ctx, l)
				sleep.For(ctx.Done(), min(p.pause(l.to), clientPace))
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
	place := s.peers.place(l)
	place.Settled = func(taken bool) { settled <- taken }
	queue := s.peers.config.Queue
	// what was refused may be a client that no worker there may serve now: it does not keep calls from those workers
	for sent < free && (l.refusals > 0 && queue.Send(s.pool, pool.Calls, place) ||
		queue.Send(s.pool, pool.CallsAndClients, place)) {
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

// lease has a client, which may reach the host of a peer that cannot be used from here, get a lease there from
// Temporal, unless the last one was too short a time ago.
func (s *seeker) lease(ctx context.Context, l *lane) {
	if time.Now().Before(l.leaseAt) {
		return
	}
	settled, place := make(chan bool, 1), s.peers.place(l)
	place.Settled = func(taken bool) { settled <- taken }
	if !s.peers.config.Queue.Send(s.pool, pool.Clients, place) {
		return
	}
	select {
	case taken := <-settled:
		if l.refusals = min(l.refusals+1, maxRefusals); taken {
			l.refusals = 0
		}
	case <-ctx.Done():
	}
	l.leaseAt = time.Now().Add(clientPace << l.refusals)
}

// place is the peer of a lane, with a worker of the pool there.
func (p *Peers) place(l *lane) pool.Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pool.Place{Peer: l.to, Worker: l.workers[rand.IntN(len(l.workers))]}
}

// Serving are the peers that have workers of a pool in service, as its roster says; none while Temporal is down.
func (p *Peers) Serving(ctx context.Context, name string) (places []pool.Place) {
	p.Waits(name) // so that the next one need not read the roster
	p.mu.Lock()
	hosts := make(map[api.Peer][]string)
	s := p.seekers[name]
	fresh := s != nil && time.Since(s.followed) < 2*rosterFresh
	if fresh {
		for to, l := range s.lanes {
			hosts[to] = l.workers
		}
	}
	p.mu.Unlock()
	if !fresh {
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		defer cancel()
		status, _ := p.config.Status(ctx, name)
		hosts = p.serving(status)
	}
	for to, workers := range hosts {
		places = append(places, pool.Place{Peer: to, Worker: workers[rand.IntN(len(workers))]})
	}
	return places
}

// At is the gateway of a host that has workers of a pool, in service or not; nowhere if the host is gone. A fresh
// roster that is known here may say where it is and, unless that must be sure, that it is gone; so may an older one
// while Temporal does not answer.
func (p *Peers) At(ctx context.Context, name, host string, sure bool) (api.Peer, error) {
	p.Waits(name) // so that there is a roster next time
	var last api.PoolStatus
	p.mu.Lock()
	s := p.seekers[name]
	known := s != nil && !s.followed.IsZero()
	fresh := known && time.Since(s.followed) < 2*rosterFresh
	if known {
		last = s.roster
	}
	p.mu.Unlock()
	to := p.at(last, host)
	if fresh && (to.Host != "" || !sure) {
		return to, nil
	}
	status, err := p.config.Status(ctx, name)
	switch {
	case err == nil:
		return p.at(status, host), nil
	case known && (to.Host != "" || !sure):
		return to, nil
	}
	return api.Peer{}, err
}

func (p *Peers) at(status api.PoolStatus, host string) api.Peer {
	for _, w := range status.Workers {
		if w.Host == host && !w.Gone && w.Endpoint != "" && w.Endpoint != p.config.Endpoint() {
			return api.Peer{Host: host, Endpoint: w.Endpoint}
		}
	}
	return api.Peer{}
}

// serving are the workers in service on other hosts.
func (p *Peers) serving(status api.PoolStatus) map[api.Peer][]string {
	hosts := make(map[api.Peer][]string)
	for _, w := range status.Workers {
		other := w.Host != p.config.HostID && w.Endpoint != "" && w.Endpoint != p.config.Endpoint()
		if other && !w.Gone && !w.Removing && w.State.InService() {
			to := api.Peer{Host: w.Host, Endpoint: w.Endpoint}
			hosts[to] = append(hosts[to], api.WorkerName(status.Pool, w.Slot))
		}
	}
	return hosts
}

// pause is the rest of the backoff of a peer that has failed.
func (p *Peers) pause(to api.Peer) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.backoff[to.Endpoint].Left(time.Now()), balance.MinBackoff/10)
}
