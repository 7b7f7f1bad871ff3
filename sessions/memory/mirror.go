package memory

import (
	"context"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/ledger"
)

var _ sessions.Mirror = (*Store)(nil)

// IDs lists the sessions that live.
func (s *Store) IDs(ctx context.Context) ([]string, error) {
	now, leave, err := s.enter(ctx, "list sessions")
	if err != nil {
		return nil, err
	}
	defer leave()
	s.sweep(now)
	ids := make([]string, 0, s.ledger.Len())
	for e := range s.ledger.All {
		ids = append(ids, e.ID)
	}
	return ids, nil
}

// Peek returns sessions as they are.
func (s *Store) Peek(ctx context.Context, ids []string) ([]*sessions.Session, error) {
	now, leave, err := s.enter(ctx, "read sessions")
	if err != nil {
		return nil, err
	}
	defer leave()
	found := make([]*sessions.Session, len(ids))
	for i, id := range ids {
		if err := sessions.CheckID(id); err != nil {
			return nil, err
		}
		if e := s.ledger.Live(id, now.UnixMilli()); e != nil {
			if found[i], err = read(e); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// Put stores a session exactly as it is.
func (s *Store) Put(ctx context.Context, session *sessions.Session) error {
	now, leave, err := s.enter(ctx, "copy session "+session.ID)
	if err != nil {
		return err
	}
	defer leave()
	exact, body, err := sessions.Exact(session)
	if err != nil {
		return err
	}
	if e := s.ledger.Get(exact.ID); e != nil {
		s.ledger.Remove(e)
	}
	if now.Before(exact.ExpiresAt()) {
		s.ledger.Insert(&ledger.Entry[[]byte]{
			ID: exact.ID, Version: exact.Version, Created: exact.CreatedAt.UnixMilli(), LastAccessed: exact.LastAccessed.UnixMilli(),
			TTL: exact.TTL.D().Milliseconds(), Value: body,
		})
	}
	return nil
}
