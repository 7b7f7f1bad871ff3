package embedded

import (
	"context"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/ledger"
)

var _ sessions.Mirror = (*Store)(nil)

// IDs lists the sessions that live.
func (s *Store) IDs(ctx context.Context) ([]string, error) {
	now, err := s.enter(ctx, "list sessions", anySession)
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.sweep(now)
	ids := make([]string, 0, s.ledger.Len())
	for e := range s.ledger.All {
		ids = append(ids, e.ID)
	}
	return ids, nil
}

// Peek returns sessions as they are.
func (s *Store) Peek(ctx context.Context, ids []string) ([]*sessions.Session, error) {
	found := make([]*sessions.Session, len(ids))
	for i, id := range ids {
		var err error
		if found[i], err = s.peek(ctx, "read session "+id, id); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Put stores a session exactly as it is.
func (s *Store) Put(ctx context.Context, session *sessions.Session) error {
	doing := "copy session " + session.ID
	exact, body, err := sessions.Exact(session)
	if err != nil {
		return err
	}
	now, err := s.enterToWrite(ctx, doing, exact.ID)
	if err != nil {
		return err
	}
	had := s.ledger.Get(exact.ID)
	if now >= exact.ExpiresAt().UnixMilli() {
		if had == nil {
			s.mu.Unlock()
			return nil
		}
		b, wait := s.remove(had)
		return s.finish(ctx, doing, b, wait)
	}
	accessed := exact.LastAccessed.UnixMilli()
	if had != nil {
		s.ledger.Remove(had)
		s.next.uses[exact.ID] = accessed // in the file there may be a later use of what was there
	}
	s.ledger.Insert(&ledger.Entry[saved]{
		ID: exact.ID, Version: exact.Version, Created: exact.CreatedAt.UnixMilli(), LastAccessed: accessed,
		TTL: exact.TTL.D().Milliseconds(), Value: saved{accessed: accessed},
	})
	b, wait := s.add(exact.ID, appendRecord(exact, body))
	return s.finish(ctx, doing, b, wait)
}
