package dualwrite

import (
	"context"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// write runs an operation that changes a session and replicates the result.
func (s *Store) write(ctx context.Context, id string,
	change func(sessions.Store) (*sessions.Session, error)) (*sessions.Session, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.replicator
	if r == nil {
		return change(s.primary)
	}
	defer r.begin(id)()
	changed, err := change(s.primary)
	if err == nil {
		r.replicate(ctx, id, changed)
	} else if !certainlyUnchanged(err) {
		r.enqueue(id, true)
	}
	return changed, err
}

// certainlyUnchanged reports whether an operation that failed with err cannot have changed anything.
func certainlyUnchanged(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeSessionNotFound, api.CodeSessionExists, api.CodeStoreFull, api.CodeInvalid, api.CodePayloadTooLarge,
		api.CodeVersionConflict:
		return true
	}
	return false
}

func (s *Store) Put(ctx context.Context, session *sessions.Session, to sessions.Purpose) (stored *sessions.Session,
	did sessions.Restored, err error) {
	stored, err = s.write(ctx, session.ID, func(store sessions.Store) (_ *sessions.Session, err error) {
		stored, did, err = store.Put(ctx, session, to)
		return stored, err
	})
	return stored, did, err
}

func (s *Store) Update(ctx context.Context, id string,
	change func(*sessions.Session) error) (*sessions.Session, error) {
	return s.write(ctx, id, func(store sessions.Store) (*sessions.Session, error) { return store.Update(ctx, id, change) })
}

func (s *Store) Delete(ctx context.Context, id string) error {
	_, err := s.write(ctx, id, func(store sessions.Store) (*sessions.Session, error) { return nil, store.Delete(ctx, id) })
	return err
}

// Get implements sessions.Store. The next flush replicates the use.
func (s *Store) Get(ctx context.Context, id string) (*sessions.Session, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.replicator
	if r == nil {
		return s.primary.Get(ctx, id)
	}
	defer r.begin(id)()
	found, err := s.primary.Get(ctx, id)
	if err == nil || !certainlyUnchanged(err) {
		r.enqueue(id, false)
	}
	return found, err
}

func (s *Store) IDs(ctx context.Context) ([]string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.primary.IDs(ctx)
}

func (s *Store) Peek(ctx context.Context, ids []string) ([]*sessions.Session, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.primary.Peek(ctx, ids)
}

func (s *Store) Count(ctx context.Context) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.primary.Count(ctx)
}

// DeleteExpired implements sessions.Store. It also sweeps the secondary and ignores its failures, which comparisons
// report.
func (s *Store) DeleteExpired(ctx context.Context) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	swept, err := s.primary.DeleteExpired(ctx)
	if r := s.replicator; r != nil && !r.fails() {
		_, _ = s.secondary.DeleteExpired(ctx)
	}
	return swept, err
}
