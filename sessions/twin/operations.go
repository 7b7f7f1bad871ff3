package twin

import (
	"context"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// write runs an operation that changes a session, and has the follower follow.
func (s *Store) write(ctx context.Context, id string, change func(sessions.Store) (*sessions.Session, error)) (*sessions.Session, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	p := s.pair
	if p == nil {
		return change(s.truth)
	}
	p.book.begin(id)
	defer p.book.end(id)
	changed, err := change(s.truth)
	if err == nil {
		p.follow(ctx, id, changed)
	} else if !nothingHappened(err) {
		p.owe(id)
	}
	return changed, err
}

// nothingHappened reports whether a failure leaves no doubt that nothing was changed.
func nothingHappened(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeSessionNotFound, api.CodeSessionExists, api.CodeStoreFull, api.CodeInvalid, api.CodePayloadTooLarge, api.CodeVersionConflict:
		return true
	}
	return false
}

// use runs an operation that at most extends a session's life, which the follower learns a moment later.
func (s *Store) use(id string, use func(sessions.Store) (*sessions.Session, error)) (*sessions.Session, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	p := s.pair
	if p == nil {
		return use(s.truth)
	}
	p.book.begin(id)
	defer p.book.end(id)
	found, err := use(s.truth)
	if err == nil || !nothingHappened(err) {
		p.book.owe(id, false)
	}
	return found, err
}

// Create is part of sessions.Store.
func (s *Store) Create(ctx context.Context, session *sessions.Session) (*sessions.Session, error) {
	return s.write(ctx, session.ID, func(store sessions.Store) (*sessions.Session, error) { return store.Create(ctx, session) })
}

// Update is part of sessions.Store.
func (s *Store) Update(ctx context.Context, id string, change func(*sessions.Session) error) (*sessions.Session, error) {
	return s.write(ctx, id, func(store sessions.Store) (*sessions.Session, error) { return store.Update(ctx, id, change) })
}

// Delete is part of sessions.Store.
func (s *Store) Delete(ctx context.Context, id string) error {
	_, err := s.write(ctx, id, func(store sessions.Store) (*sessions.Session, error) { return nil, store.Delete(ctx, id) })
	return err
}

// Get is part of sessions.Store.
func (s *Store) Get(ctx context.Context, id string) (*sessions.Session, error) {
	return s.use(id, func(store sessions.Store) (*sessions.Session, error) { return store.Get(ctx, id) })
}

// Touch is part of sessions.Store.
func (s *Store) Touch(ctx context.Context, id string) error {
	_, err := s.use(id, func(store sessions.Store) (*sessions.Session, error) { return nil, store.Touch(ctx, id) })
	return err
}

// List is part of sessions.Store.
func (s *Store) List(ctx context.Context, after string, limit int) ([]*sessions.Session, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	return s.truth.List(ctx, after, limit)
}

// Count is part of sessions.Store.
func (s *Store) Count(ctx context.Context) (int, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	return s.truth.Count(ctx)
}

// DeleteExpired is part of sessions.Store. It sweeps the follower, too; what that fails with, its own keeper notices.
func (s *Store) DeleteExpired(ctx context.Context) (int, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	swept, err := s.truth.DeleteExpired(ctx)
	if s.pair != nil && !s.pair.fails() {
		_, _ = s.pair.follower.DeleteExpired(ctx) // nothing depends on it: expired is gone
	}
	return swept, err
}

// SetBounds is part of sessions.Store.
func (s *Store) SetBounds(max int, onFull sessions.OnFull) {
	s.Each(func(store sessions.Mirror) { store.SetBounds(max, onFull) })
}
