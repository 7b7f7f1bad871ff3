// Package twin moves sessions from one store to another while they are in use.
//
// A Store stands before one store, which it calls the truth, and can be given a second one. From then on every change goes to both: the
// truth decides and acknowledges, and the other one follows, exactly, before the caller has its answer. What the other one could not
// take is owed to it and made up for; comparisons of all sessions put right what is not noticed otherwise. At any moment the two
// can change roles, so that a move can be undone, and one of them can be let go.
package twin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// Times of a pair of stores.
const (
	// followTimeout is how long the second store may keep a caller waiting; then the change is owed to it.
	followTimeout = 2 * time.Second
	// settleEvery is the rhythm in which what is owed is made up for, uses that changed nothing else included.
	settleEvery = 300 * time.Millisecond
	// compareEvery is the rhythm of comparisons while the stores are in step; until they are, one follows the other.
	compareEvery = time.Minute
	// standstill is the longest that operations wait while the stores change roles.
	standstill = 5 * time.Second
)

// Store is a sessions.Store that can become two. Its methods beside those of sessions.Store may be called by one at a time.
type Store struct {
	// gate is held for reading by each operation from its beginning until both stores have it, and for writing by whoever changes which
	// stores there are. It guards what follows.
	gate  sync.RWMutex
	truth sessions.Mirror
	pair  *pair // nil while there is one store
}

var _ sessions.Store = (*Store)(nil)

// Of stands before a store, which it closes with itself.
func Of(truth sessions.Mirror) *Store { return &Store{truth: truth} }

// Begin gives the store a second one, which follows it from now on, and begins to compare. cutOver says that the roles are changed
// already, as after a restart. wary keeps the first comparison from emptying the follower: where the truth has nothing and the follower
// something, it stops with a problem. There must be no second store yet.
func (s *Store) Begin(follower sessions.Mirror, cutOver, wary bool) {
	s.gate.Lock()
	defer s.gate.Unlock()
	p := &pair{store: s, follower: follower, cutOver: cutOver, wary: wary, book: newBook(), wake: make(chan struct{}, 1)}
	s.pair = p
	p.start()
}

// Swap makes the follower the truth, and the truth the follower, between two operations. All that was acknowledged is in both stores
// then. commit is called while everything stands still, right before; its error leaves all as it was. Swap fails with CodeInvalid if there is
// one store only, or if the two are not in step; and with CodeStoreUnavailable if they cannot be brought into step in time.
//
// With force it does not wait for the two to be in step, and says how many sessions may have had a change that the follower lacks.
func (s *Store) Swap(ctx context.Context, force bool, commit func() error) (lost int, err error) {
	s.gate.RLock()
	p := s.pair
	s.gate.RUnlock()
	if p == nil {
		return 0, errSingle
	}
	p.stop() // what it waits for, nobody else is to wait for
	defer p.start()
	if !force {
		if report := p.report(); !report.InStep {
			return 0, notInStep(report)
		}
		if err := p.settle(ctx); err != nil { // while others go on, so that they wait the less then
			return 0, sessions.Unavailable("bring the two stores into step", err)
		}
	}
	s.gate.Lock()
	defer s.gate.Unlock()
	still, cancel := context.WithTimeout(ctx, standstill)
	defer cancel()
	if !force {
		if err := p.settleAll(still); err != nil {
			return 0, sessions.Unavailable("bring the two stores into step", err)
		}
	}
	if err := commit(); err != nil {
		return 0, err
	}
	lost = p.book.owedWrites()
	s.truth, p.follower = p.follower, s.truth
	p.cutOver = !p.cutOver
	p.turned(force)
	return lost, nil
}

func notInStep(report api.SessionCopy) error {
	why := "a comparison has yet to find them equal"
	if report.Problem != "" {
		why = report.Problem
	}
	return api.Errorf(api.CodeInvalid, "the two stores are not in step yet: %s", why)
}

var errSingle = api.Errorf(api.CodeInvalid, "no copy goes on")

// End lets the follower go: from now on there is one store, the truth. commit is called while everything stands still, right before; its
// error leaves all as it was. The caller closes the store that was let go. End fails with CodeInvalid if there is one store only.
func (s *Store) End(commit func() error) (released sessions.Mirror, err error) {
	s.gate.RLock()
	p := s.pair
	s.gate.RUnlock()
	if p == nil {
		return nil, errSingle
	}
	p.stop() // what it waits for, nobody else is to wait for
	s.gate.Lock()
	defer s.gate.Unlock()
	if err := commit(); err != nil {
		p.start()
		return nil, err
	}
	s.pair = nil
	return p.follower, nil
}

// Report tells how the two stores stand; what only the caller knows is empty. With one store its phase is CopyNone.
func (s *Store) Report() api.SessionCopy {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.pair == nil {
		return api.SessionCopy{Phase: api.CopyNone}
	}
	return s.pair.report()
}

// Each calls do for each store there is, so that settings can reach them.
func (s *Store) Each(do func(sessions.Mirror)) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	do(s.truth)
	if s.pair != nil {
		do(s.pair.follower)
	}
}

// Close ends the comparing and closes all stores there are.
func (s *Store) Close() error {
	s.gate.RLock()
	p := s.pair
	s.gate.RUnlock()
	if p != nil {
		p.stop()
	}
	s.gate.Lock()
	defer s.gate.Unlock()
	err := s.truth.Close()
	if s.pair == nil {
		return err
	}
	if other := s.pair.follower.Close(); err == nil && other != nil {
		err = fmt.Errorf("close the second session store: %w", other)
	}
	return err
}
