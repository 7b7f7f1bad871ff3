package memory

import (
	"context"

	"github.com/tempool/tempool/sessions"
)

var _ sessions.Replica = (*Store)(nil)

// IDs lists the live sessions, least recently used first.
func (s *Store) IDs(ctx context.Context) ([]string, error) {
	now, err := s.lock(ctx, "list sessions")
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.sweepLocked(now)
	ids := make([]string, 0, s.sessions.Len())
	for e := range s.sessions.All {
		ids = append(ids, e.ID)
	}
	return ids, nil
}

// Peek returns sessions without extending their TTL.
func (s *Store) Peek(ctx context.Context, ids []string) ([]*sessions.Session, error) {
	now, err := s.lock(ctx, "read sessions")
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	found := make([]*sessions.Session, len(ids))
	for i, id := range ids {
		if err := sessions.CheckID(id); err != nil {
			return nil, err
		}
		if e := s.sessions.Live(id, now.UnixMilli()); e != nil {
			if found[i], err = decode(e); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// Put stores an exact copy of a session.
func (s *Store) Put(ctx context.Context, session *sessions.Session) error {
	now, err := s.lock(ctx, "copy session "+session.ID)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	exact, body, err := sessions.PrepareCopy(session)
	if err != nil {
		return err
	}
	if e := s.sessions.Get(exact.ID); e != nil {
		s.sessions.Remove(e)
	}
	if now.Before(exact.ExpiresAt()) {
		s.sessions.Insert(newEntry(exact, body))
	}
	return nil
}
