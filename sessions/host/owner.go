package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

const (
	// ownerCacheTTL is how long an answer of a pool counts, and that it did not answer; see noteLocked.
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

// ownedElsewhere is the error of using a pool's sessions on this host while they are in the local store of another.
func (s *Stores) ownedElsewhere(code api.Code, pool, owner string) error {
	return api.Errorf(code, "the sessions of pool %s are in the local store of host %s, which host %s cannot reach; "+
		"to use several hosts, set sessions.store = \"redis\" and sessions.url", pool, owner, s.hostID)
}

// settings returns the session settings of a pool whose store can be used here; without a pool's name, those of the
// pools here if they use the same store.
func (s *Stores) settings(ctx context.Context, pool string, claim bool) (settings spec.Sessions, err error) {
	names := []string{pool}
	if pool == "" {
		names, err = s.defaultPools()
	}
	for _, name := range slices.Backward(names) { // the first one's bounds apply
		if err == nil {
			settings, err = s.poolSettings(ctx, name, claim)
		}
	}
	return settings, err
}

// poolSettings returns the session settings of a pool whose store can be used here: it is not in the local store of
// another host. With claim, this host becomes the owner of a local store without one, for as long as it has workers of
// the pool.
//
// It asks the pool when its answer is needed: for its owner, and while the pool has no process here, for example after
// a restart of this agent, also for its settings. If the pool does not answer, what it said before still counts. For a
// pool that is unknown here, it fails with api.CodePoolNotFound if it is not running, with api.CodeNoWorkers if its
// sessions are on another host, and with api.CodeUnavailable if it does not answer. Nothing was stored then, so the
// caller may ask another gateway.
func (s *Stores) poolSettings(ctx context.Context, pool string, claim bool) (settings spec.Sessions, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[pool]
	if p != nil && (p.processes > 0 && p.settings.Store == spec.StoreRedis || p.answered()) {
		return p.settings, p.refused
	}
	s.mu.Unlock()
	status, err := s.askPool(ctx, pool, claim)
	s.mu.Lock()
	settings = status.Spec.Sessions
	switch p = s.pools[pool]; {
	case p != nil && ctx.Err() != nil: // the pool may yet answer others
		return p.settings, ownerUnknown(pool, ctx.Err())
	case p != nil:
		return p.settings, p.refused
	case errors.Is(err, api.ErrPoolNotFound):
		return settings, err
	case err != nil:
		return settings, api.Errorf(api.CodeUnavailable,
			"cannot find the session store of pool %s: it has no worker on host %s, and its workflow does not answer: %w", pool,
			s.hostID, err).After(time.Second)
	case settings.Store == spec.StoreRedis || status.SessionsHost == s.hostID:
		s.learnLocked(pool, settings)
		s.noteLocked(pool, status, nil)
		return settings, nil
	case status.SessionsHost != "":
		return settings, s.ownedElsewhere(api.CodeNoWorkers, pool, status.SessionsHost)
	}
	return settings, api.Errorf(api.CodeNoWorkers,
		"pool %s stores its sessions on the host of its workers, and has no worker on host %s", pool,
		s.hostID).After(time.Second)
}

// askPool asks a pool once for all who ask at the same time: all workers of a large pool may start on this host at
// once, with many requests for sessions. The answer is noted even if they have gone. A host claims no store of a pool
// that is new to it, or that another one owns while no worker of the pool is here.
func (s *Stores) askPool(ctx context.Context, pool string, claim bool) (api.PoolStatus, error) {
	answer := s.asking.DoChan(fmt.Sprint(pool, claim), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), ownerTimeout)
		defer cancel()
		status, err := s.ask.Status(ctx, pool)
		s.mu.Lock()
		defer s.mu.Unlock()
		p := s.pools[pool]
		if claim && err == nil && status.SessionsHost != s.hostID && p != nil && (p.processes > 0 ||
			status.SessionsHost == "" && status.Spec.Sessions.Store != spec.StoreRedis) {
			s.mu.Unlock()
			if err = s.ask.Claim(ctx, pool); err == nil {
				status, err = s.ask.Status(ctx, pool)
			}
			s.mu.Lock()
		}
		s.noteLocked(pool, status, err)
		return status, err
	})
	select {
	case got := <-answer:
		return got.Val.(api.PoolStatus), got.Err
	case <-ctx.Done():
		return api.PoolStatus{}, ctx.Err()
	}
}

// noteLocked notes a pool's answer, or that there was none.
func (s *Stores) noteLocked(pool string, status api.PoolStatus, err error) {
	p := s.pools[pool]
	if p == nil {
		return
	}
	if err == nil && p.processes == 0 { // else the spec of a process is newer
		s.learnLocked(pool, status.Spec.Sessions)
	}
	p.until = time.Now().Add(ownerCacheTTL)
	switch {
	case p.settings.Store == spec.StoreRedis:
	case errors.Is(err, api.ErrPoolNotFound), err == nil && status.SessionsHost == s.hostID: // an ended pool has no owner
		p.mine, p.refused = true, nil
		if p.processes > 0 { // until the last one ends, or another one starts
			p.until = p.until.AddDate(1, 0, 0)
		}
	case err != nil && p.mine: // until it answers
	case err != nil:
		p.refused = ownerUnknown(pool, err)
	case status.SessionsHost == "": // until a host claims it
		p.mine, p.refused, p.until = false, nil, time.Time{}
	default:
		p.mine, p.refused = false, s.ownedElsewhere(api.CodeStoreUnavailable, pool, status.SessionsHost)
	}
}

// answered reports whether the pool's last answer counts. Once it is old, the first caller asks; for the others it
// counts meanwhile.
func (p *poolSessions) answered() bool {
	now := time.Now()
	if now.Before(p.until) {
		return true
	}
	if !p.until.IsZero() {
		p.until = now.Add(ownerCacheTTL)
	}
	return false
}

func ownerUnknown(pool string, err error) error {
	return api.Errorf(api.CodeStoreUnavailable, "cannot find out which host stores the sessions of pool %s: %w", pool,
		err).After(time.Second)
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
	status, err := s.askPool(ctx, pool, false)
	s.mu.Lock()
	if p := s.pools[pool]; p != nil && err != nil {
		p.mine = false // another host may have claimed it meanwhile
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
