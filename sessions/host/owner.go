package host

import (
	"context"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

const (
	// ownerCacheTTL is how long a refusal of ensureOwner counts, and the settings of a pool that has no process here.
	ownerCacheTTL = 5 * time.Second
	// ownerTimeout bounds one request to a pool.
	ownerTimeout = 5 * time.Second
)

// Pools are requests to pools. They fail with api.CodePoolNotFound for a pool that has ended.
type Pools struct {
	Status func(ctx context.Context, pool string) (api.PoolStatus, error)
	List   func(ctx context.Context) ([]string, error) // the running ones
	// Claim makes this host the owner of the pool's sessions if they are in a local store and there is none. Later calls
	// of Status know the owner.
	Claim func(ctx context.Context, pool string) error
}

func (s *Stores) poolStatus(ctx context.Context, pool string) (api.PoolStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	return s.ask.Status(ctx, pool)
}

// ownedElsewhere is the error of using a pool's sessions on this host while they are in the local store of another.
func (s *Stores) ownedElsewhere(code api.Code, pool, owner string) error {
	return api.Errorf(code, "the sessions of pool %s are in the local store of host %s, which host %s cannot reach; "+
		"to use several hosts, set sessions.store = \"redis\" and sessions.url", pool, owner, s.hostID)
}

// poolSettings returns the session settings of a pool. It asks the pool while the pool has no process here, for example
// after a restart of this agent; if the pool does not answer, settings learned before still count. It fails with
// api.CodePoolNotFound for a pool that is unknown here and not running, with api.CodeNoWorkers for one whose sessions
// are on another host, and with api.CodeUnavailable if the pool does not answer. Nothing was stored then, so the caller
// may ask another gateway.
func (s *Stores) poolSettings(ctx context.Context, pool string) (spec.Sessions, error) {
	s.mu.Lock()
	p := s.pools[pool]
	var known spec.Sessions
	fresh := false
	if p != nil {
		known, fresh = p.settings, p.processes > 0 || time.Since(p.settingsAt) < ownerCacheTTL
	}
	if p != nil && !fresh {
		p.settingsAt = time.Now() // this caller asks; the others use the known settings meanwhile
	}
	s.mu.Unlock()
	if fresh {
		return known, nil
	}
	status, err := s.poolStatus(ctx, pool)
	switch {
	case err != nil && p != nil:
		return known, nil
	case errors.Is(err, api.ErrPoolNotFound):
		return known, err
	case err != nil:
		return known, api.Errorf(api.CodeUnavailable,
			"cannot find the session store of pool %s: it has no worker on host %s, and its workflow does not answer: %w", pool,
			s.hostID, err).After(time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p = s.pools[pool]
	if p != nil && p.processes > 0 { // a process started meanwhile, and its spec is newer
		return p.settings, nil
	}
	if settings := status.Spec.Sessions; settings.Store != spec.StoreRedis && status.SessionsHost != s.hostID {
		switch {
		case status.SessionsHost != "" && p != nil: // another host has claimed the store meanwhile
			p.owned, p.ownerErr, p.ownerAt = false, s.ownedElsewhere(api.CodeStoreUnavailable, pool,
				status.SessionsHost), time.Now()
			return known, p.ownerErr
		case status.SessionsHost != "":
			return known, s.ownedElsewhere(api.CodeNoWorkers, pool, status.SessionsHost)
		case p == nil:
			return known, api.Errorf(api.CodeNoWorkers,
				"pool %s stores its sessions on the host of its workers, and has no worker on host %s", pool,
				s.hostID).After(time.Second)
		}
	}
	p = s.learnLocked(pool, status.Spec.Sessions)
	p.settingsAt = time.Now()
	return p.settings, nil
}

// ensureOwner claims the pool's local session store for this host, if claim is set, and fails if another host has
// claimed it. The first host that uses the store owns it for as long as it has workers of the pool.
func (s *Stores) ensureOwner(ctx context.Context, pool string, claim bool) error {
	s.mu.Lock()
	p := s.pools[pool]
	known := p == nil || p.owned || p.settings.Store == spec.StoreRedis
	confirmed := p != nil && p.confirmed
	var refused error
	if !known && (p.ownerErr != nil || confirmed) {
		known, refused = time.Since(p.ownerAt) < ownerCacheTTL, p.ownerErr
		if !known && !p.ownerAt.IsZero() {
			p.ownerAt = time.Now() // this caller asks; for the others, the last answer counts meanwhile
		}
	}
	s.mu.Unlock()
	if known {
		return refused
	}
	unknown := func() { // the next one asks again
		s.mu.Lock()
		defer s.mu.Unlock()
		p.ownerAt = time.Time{}
	}
	claimCtx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	status, err := s.sharedStatus(ctx, pool)
	if claim && err == nil && status.SessionsHost != s.hostID {
		if err = s.ask.Claim(claimCtx, pool); err == nil {
			status, err = s.ask.Status(claimCtx, pool)
		}
	}
	switch {
	case err == nil && status.SessionsHost == "" && !claim: // until another host claims it
		unknown()
		return nil
	case err != nil && confirmed && ctx.Err() == nil: // until it answers
		return nil
	case errors.Is(err, api.ErrPoolNotFound): // the pool has ended, so no other host owns its store
		err = nil
	case err != nil:
		err = api.Errorf(api.CodeStoreUnavailable, "cannot find out which host stores the sessions of pool %s: %w", pool,
			err).After(time.Second)
		if ctx.Err() != nil { // of this caller alone
			unknown()
			return err
		}
	case status.SessionsHost != s.hostID:
		err = s.ownedElsewhere(api.CodeStoreUnavailable, pool, status.SessionsHost)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.owned, p.ownerErr, p.ownerAt = err == nil, err, time.Now()
	return err
}

// Admit rejects a start of a pool whose sessions are in the local store of another host, while that host has workers of
// the pool. It asks the pool only while the pool has no process here.
func (s *Stores) Admit(ctx context.Context, r api.StartRequest) error {
	pool := api.PoolOf(r.Worker)
	s.mu.Lock()
	here := s.pools[pool] != nil && s.pools[pool].processes > 0
	s.mu.Unlock()
	if here || r.Spec.Sessions.Store == spec.StoreRedis {
		return nil
	}
	status, err := s.sharedStatus(ctx, pool)
	s.mu.Lock()
	if p := s.pools[pool]; p != nil {
		p.confirmed = err == nil && status.SessionsHost == s.hostID
	}
	s.mu.Unlock()
	if err != nil || status.SessionsHost == "" || status.SessionsHost == s.hostID {
		return nil // after an error, the first use of a session finds out
	}
	for _, w := range status.Workers {
		if w.Host == status.SessionsHost && !w.Gone && w.State.Live() && w.State != lifecycle.Starting {
			return s.ownedElsewhere(api.CodeStoreUnavailable, pool, status.SessionsHost)
		}
	}
	return nil
}

// sharedStatus asks a pool once for all who ask at the same time: all workers of a large pool may start on this host at
// once, with many requests for sessions. While the pool does not answer, its confirmed owner goes on without it.
func (s *Stores) sharedStatus(ctx context.Context, pool string) (api.PoolStatus, error) {
	answer := s.asking.DoChan(pool, func() (any, error) {
		status, err := s.poolStatus(context.Background(), pool)
		s.mu.Lock()
		defer s.mu.Unlock()
		if p := s.pools[pool]; err != nil && p != nil && p.confirmed {
			p.ownerErr, p.ownerAt = nil, time.Now()
		}
		return status, err
	})
	select {
	case got := <-answer:
		return got.Val.(api.PoolStatus), got.Err
	case <-ctx.Done():
		return api.PoolStatus{}, ctx.Err()
	}
}
