// Package dualwrite moves sessions from one store to another while they are in use.
//
// A Store wraps a primary store and can get a secondary one. From then on, every change goes to both: the primary
// decides and acknowledges, and the secondary gets an exact copy before the caller gets its answer. Changes that the
// secondary did not accept go to a backlog, which is flushed later; comparisons of all sessions repair every other
// difference. The two stores can switch roles at any time, so a move can be undone, and either one can be released.
package dualwrite

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// switchTimeout limits how long operations wait while the stores switch roles.
const switchTimeout = 5 * time.Second

// Store is a sessions.Store that writes to one store, or to two during a copy. StartCopy, SwitchRoles, EndCopy and
// Close must not be called concurrently.
type Store struct {
	// mu guards the fields below: each operation holds it for reading until both stores have its result; changing the
	// roles takes it for writing. The background goroutine does not run meanwhile, so it needs no lock.
	mu         sync.RWMutex
	primary    sessions.Store
	secondary  sessions.Store // nil without a copy
	replicator *replicator    // nil without a copy
}

var _ sessions.Store = (*Store)(nil)

// New wraps a store. Close closes it.
func New(primary sessions.Store) *Store { return &Store{primary: primary} }

// StartCopy adds a secondary store and starts to copy and compare. guardSecondary makes the first comparison fail,
// rather than delete the secondary's sessions, if the primary has none. There must be no secondary store yet.
func (s *Store) StartCopy(secondary sessions.Store, guardSecondary bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secondary = secondary
	s.replicator = &replicator{
		store: s, guardSecondary: guardSecondary, wake: make(chan struct{}, 1),
		busy: make(map[string]int), backlog: make(map[string]*pending),
	}
	s.replicator.start()
}

// SwitchRoles switches the roles of the two stores between two operations. Every acknowledged change is then in both.
// SwitchRoles calls commit while operations wait, right before the switch; an error of commit cancels the switch. It
// fails with CodeInvalid without a secondary store and if a comparison has not found the stores equal, and with
// CodeStoreUnavailable if the backlog cannot be flushed in time.
//
// With force, it switches at once and returns the number of sessions with a change that the new primary may lack.
func (s *Store) SwitchRoles(ctx context.Context, force bool, commit func() error) (lost int, err error) {
	r, err := s.stopReplicator()
	if err != nil {
		return 0, err
	}
	defer r.start()
	if !force {
		if status := r.status(); !status.InSync {
			return 0, api.Errorf(api.CodeInvalid, "the two session stores are not in sync yet: %s",
				cmp.Or(status.Problem, "no comparison has found them equal"))
		}
		// Flush first while operations continue, so that they wait less for the flush below.
		if err := r.flush(ctx); err != nil {
			return 0, sessions.Unavailable("flush the backlog to the secondary session store", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !force {
		ctx, cancel := context.WithTimeout(ctx, switchTimeout)
		defer cancel()
		if err := r.flush(ctx); err != nil {
			return 0, sessions.Unavailable("flush the backlog to the secondary session store", err)
		}
	}
	if err := commit(); err != nil {
		return 0, err
	}
	s.primary, s.secondary = s.secondary, s.primary
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, session := range r.backlog {
		if session.changed {
			lost++
		}
	}
	r.secondaryErr, r.compareErr, r.equal = nil, nil, r.equal && !force
	return lost, nil
}

// stopReplicator stops the background goroutine, which needs unchanging roles, before mu is taken for writing, so that
// no operation waits for it.
func (s *Store) stopReplicator() (*replicator, error) {
	s.mu.RLock()
	r := s.replicator
	s.mu.RUnlock()
	if r == nil {
		return nil, api.Errorf(api.CodeInvalid, "no session copy is in progress")
	}
	r.stop()
	return r, nil
}

// EndCopy ends the copy: only the primary remains. EndCopy calls commit while operations wait; an error of commit
// cancels the end. The caller closes the released store. EndCopy fails with CodeInvalid without a secondary store.
func (s *Store) EndCopy(commit func() error) (released sessions.Store, err error) {
	r, err := s.stopReplicator()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := commit(); err != nil {
		r.start()
		return nil, err
	}
	released = s.secondary
	s.replicator, s.secondary = nil, nil
	return released, nil
}

// Status returns the state of the copy, without what only the caller knows: between which stores it is, and whether it
// is cut over. Its phase is CopyNone without a secondary store.
func (s *Store) Status() api.SessionCopy {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.replicator == nil {
		return api.SessionCopy{Phase: api.CopyNone}
	}
	return s.replicator.status()
}

// Close stops the copy and closes both stores.
func (s *Store) Close() error {
	_, _ = s.stopReplicator() // it fails only if there is none
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.primary.Close()
	if s.secondary == nil {
		return err
	}
	if other := s.secondary.Close(); err == nil && other != nil {
		err = fmt.Errorf("close the secondary session store: %w", other)
	}
	return err
}
