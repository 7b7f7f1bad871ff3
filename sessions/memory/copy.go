package memory

import (
	"context"
	"slices"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/expirylru"
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
	return expirylru.IDs(slices.Collect(s.sessions.All)), nil
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

// Restore stores a session of a backup unless the store has a newer one.
func (s *Store) Restore(ctx context.Context, session *sessions.Session) (sessions.Restored, error) {
	now, err := s.lock(ctx, "restore session "+session.ID)
	if err != nil {
		return "", err
	}
	defer s.mu.Unlock()
	exact, body, err := sessions.PrepareRestore(session, now)
	switch {
	case err != nil:
		return "", err
	case exact == nil:
		return sessions.RestoredExpired, nil
	}
	s.sweepLocked(now)
	e := s.sessions.Get(exact.ID)
	if e == nil {
		if s.sessions.Len() >= s.max {
			return "", sessions.Full(s.max)
		}
		s.sessions.Insert(newEntry(exact, body))
		return sessions.RestoredNew, nil
	}
	if !exact.Header().MayReplace(sessions.Header{Version: e.Value.version, CreatedAt: e.Value.createdAt}) {
		return sessions.RestoredKept, nil
	}
	s.sessions.Remove(e)
	restored := newEntry(exact, body)
	restored.LastAccessed = max(restored.LastAccessed, e.LastAccessed)
	s.sessions.Insert(restored)
	return sessions.RestoredOlder, nil
}
