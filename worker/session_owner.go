package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// claims knows from the pools which host keeps their sessions in a store of its own. A pool that has ended is CodePoolNotFound.
type sessionOwner interface {
	// claim makes this host the one if there is none, and says who it is.
	claim(ctx context.Context, pool string) (holder string, err error)
	// status is how a pool stands; it changes nothing.
	status(ctx context.Context, pool string) (api.PoolStatus, error)
}

// poolSessionOwner asks the pools' workflows, as ask does for their status.
type poolSessionOwner struct {
	temporal client.Client
	query    func(ctx context.Context, pool string) (api.PoolStatus, error)
	hostID   string
}

func (c poolSessionOwner) claim(ctx context.Context, pool string) (string, error) {
	err := c.temporal.SignalWorkflow(ctx, api.PoolWorkflowID(pool), "", api.SignalSessionStoreClaimed, api.SessionStoreClaimed{Host: c.hostID})
	var gone *serviceerror.NotFound
	switch {
	case errors.As(err, &gone):
		return "", api.Errorf(api.CodePoolNotFound, "no pool %s is running", pool)
	case err != nil:
		return "", fmt.Errorf("tell pool %s where its sessions are: %w", pool, err)
	}
	status, err := c.status(ctx, pool) // a query sees all that was signalled before it
	return status.SessionsHost, err
}

func (c poolSessionOwner) status(ctx context.Context, pool string) (api.PoolStatus, error) {
	return c.query(ctx, pool)
}

// ownedElsewhere is why this host has nothing to do with a pool's sessions.
func (s *stores) ownedElsewhere(code api.Code, pool, holder string) error {
	return api.Errorf(code, "host %s keeps the sessions of pool %s in a store of its own, which host %s cannot reach: "+
		"for several hosts set sessions.store = \"redis\" and sessions.url", holder, pool, s.hostID)
}

// poolSettings asks a pool that has no process here, as when this agent has just been restarted, how it keeps sessions: they are where they
// were, and are not to be taken for gone. What was known of it stands while it does not answer. It fails with CodePoolNotFound for a pool that
// was never here and does not run, with CodeNoWorkers for one whose sessions are another host's, and with CodeUnavailable when it does not answer:
// nothing has been stored then, and another gateway may be asked.
func (s *stores) poolSettings(ctx context.Context, pool string) (spec.Sessions, error) {
	s.mu.Lock()
	p := s.pools[pool]
	var known spec.Sessions
	fresh := false
	if p != nil {
		known, fresh = p.settings, p.processes > 0 || time.Since(p.settingsAt) < ownerCacheTTL
	}
	if p != nil && !fresh {
		p.settingsAt = time.Now() // one asks, and the others do not wait for it
	}
	s.mu.Unlock()
	if fresh {
		return known, nil
	}
	asking, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	status, err := s.owner.status(asking, pool)
	switch {
	case err != nil && p != nil:
		return known, nil
	case errors.Is(err, api.ErrPoolNotFound):
		return known, err
	case err != nil:
		return known, api.Errorf(api.CodeUnavailable, "pool %s has no worker on host %s, and where it keeps its sessions is not known: %w", pool, s.hostID, err).After(time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p = s.pools[pool]
	if p != nil && p.processes > 0 { // one came meanwhile, and knows better
		return p.settings, nil
	}
	if settings := status.Spec.Sessions; settings.Store != spec.StoreRedis && status.SessionsHost != s.hostID {
		switch {
		case status.SessionsHost != "" && p != nil: // another host has it now
			p.owned, p.ownerErr, p.ownerAt = false, s.ownedElsewhere(api.CodeStoreUnavailable, pool, status.SessionsHost), time.Now()
			return known, p.ownerErr
		case status.SessionsHost != "":
			return known, s.ownedElsewhere(api.CodeNoWorkers, pool, status.SessionsHost)
		case p == nil:
			return known, api.Errorf(api.CodeNoWorkers, "pool %s keeps its sessions where its workers are, and has none on host %s", pool, s.hostID).After(time.Second)
		}
	}
	p = s.learnLocked(pool, status.Spec.Sessions)
	p.settingsAt = time.Now()
	return p.settings, nil
}

// admit refuses to start a worker of a pool whose sessions another host keeps in a store of its own, for as long as that one has workers
// of it. It is asked of the pool while no process of the pool is here.
func (s *stores) admit(ctx context.Context, r api.StartRequest) error {
	pool := poolOf(r.Worker)
	s.mu.Lock()
	here := s.pools[pool] != nil && s.pools[pool].processes > 0
	s.mu.Unlock()
	if here || r.Spec.Sessions.Store == spec.StoreRedis {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	status, err := s.owner.status(asking, pool)
	if err != nil || status.SessionsHost == "" || status.SessionsHost == s.hostID {
		return nil // what is not known now, the first use of a session finds out
	}
	for _, w := range status.Workers {
		if w.Host == status.SessionsHost && !w.Gone && w.State.Live() && w.State != lifecycle.Starting {
			return s.ownedElsewhere(api.CodeStoreUnavailable, pool, status.SessionsHost)
		}
	}
	return nil
}

// ensureOwner fails if another host keeps the pool's sessions in a store that this one cannot reach. Who was the first to use its store stays in
// possession for as long as it has workers.
func (s *stores) ensureOwner(ctx context.Context, pool string) error {
	s.mu.Lock()
	p := s.pools[pool]
	known := p == nil || p.owned || p.settings.Store == spec.StoreRedis
	var refused error
	if !known && time.Since(p.ownerAt) < ownerCacheTTL {
		refused = p.ownerErr
	}
	s.mu.Unlock()
	if known || refused != nil {
		return refused
	}
	asking, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	holder, err := s.owner.claim(asking, pool)
	switch {
	case errors.Is(err, api.ErrPoolNotFound): // it has ended, and nobody else has it
		err = nil
	case err != nil:
		err = api.Errorf(api.CodeStoreUnavailable, "whether another host keeps the sessions of pool %s is not known: %w", pool, err).After(time.Second)
	case holder != s.hostID:
		err = s.ownedElsewhere(api.CodeStoreUnavailable, pool, holder)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.owned, p.ownerErr, p.ownerAt = err == nil, err, time.Now()
	return err
}

// otherHosts asks where a pool has workers but here. It fails with CodeStoreUnavailable if the pool does not say.
func (s *stores) otherHosts(ctx context.Context, pool string) ([]string, error) {
	asking, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	view, err := s.workers(asking, pool)
	switch {
	case errors.Is(err, api.ErrPoolNotFound): // it has ended, and nobody else has it
		return nil, nil
	case err != nil:
		return nil, api.Errorf(api.CodeStoreUnavailable, "whether other hosts have workers of pool %s, too, is not known: %w", pool, err).After(time.Second)
	}
	return s.otherHostsIn(view), nil
}

func (s *stores) otherHostsIn(view api.PoolWorkers) (others []string) {
	for _, w := range view.Workers {
		if w.Host != "" && w.Host != s.hostID && !slices.Contains(others, w.Host) {
			others = append(others, w.Host)
		}
	}
	slices.Sort(others)
	return others
}
