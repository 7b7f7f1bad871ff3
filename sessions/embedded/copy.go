package embedded

import (
	"context"

	"github.com/tempool/tempool/sessions"
)

var _ sessions.Replica = (*Store)(nil)

// IDs lists the live sessions, least recently used first.
func (s *Store) IDs(ctx context.Context) ([]string, error) {
	now, err := s.lock(ctx, "list sessions", anySession)
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
	found := make([]*sessions.Session, len(ids))
	for i, id := range ids {
		var err error
		if found[i], err = s.peek(ctx, "read session "+id, id); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Put stores an exact copy of a session.
func (s *Store) Put(ctx context.Context, session *sessions.Session) error {
	operation := "copy session " + session.ID
	exact, body, err := sessions.PrepareCopy(session)
	if err != nil {
		return err
	}
	now, err := s.lockForWrite(ctx, operation, exact.ID)
	if err != nil {
		return err
	}
	replaced := s.sessions.Get(exact.ID)
	if now >= exact.ExpiresAt().UnixMilli() {
		if replaced == nil {
			s.mu.Unlock()
			return nil
		}
		b, wait := s.removeLocked(replaced)
		return s.unlockAndWait(ctx, operation, b, wait)
	}
	if replaced != nil {
		s.sessions.Remove(replaced)
		s.next.uses[exact.ID] = exact.LastAccessed.UnixMilli() // overwrites a later use in the file
	}
	s.sessions.Insert(newEntry(exact.ID, exact.Header()))
	b, wait := s.enqueueLocked(exact.ID, encodeRecord(exact, body))
	return s.unlockAndWait(ctx, operation, b, wait)
}
