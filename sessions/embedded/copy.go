package embedded

import (
	"context"
	"time"

	"github.com/tempool/tempool/sessions"
)

var _ sessions.Replica = (*Store)(nil)

// IDs lists the live sessions, least recently used first.
func (s *Store) IDs(ctx context.Context) (ids []string, err error) {
	_, err = s.swept(ctx, "list sessions", func() { ids = s.sessions.IDs() })
	return ids, err
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
		return s.unlockAndWait(ctx, operation, s.removeLocked(replaced))
	}
	if replaced != nil {
		s.sessions.Remove(replaced)
	}
	s.insertLocked(exact)
	return s.unlockAndWait(ctx, operation, s.enqueueLocked(exact.ID, encodeRecord(exact, body)))
}

// Restore stores a session of a backup unless the store has a newer one.
func (s *Store) Restore(ctx context.Context, session *sessions.Session) (sessions.Restored, error) {
	operation := "restore session " + session.ID
	exact, body, err := sessions.PrepareRestore(session, s.options.Now())
	if err != nil {
		return "", err
	}
	now, err := s.lockForWrite(ctx, operation, session.ID)
	if err != nil {
		return "", err
	}
	if exact == nil {
		s.mu.Unlock()
		return sessions.RestoredExpired, nil
	}
	s.sweepLocked(now)
	restored := sessions.RestoredNew
	if e := s.sessions.Get(exact.ID); e != nil {
		if !exact.Header().MayReplace(sessions.Header{Version: e.Value.version, CreatedAt: e.Value.createdAt}) {
			s.mu.Unlock()
			return sessions.RestoredKept, nil
		}
		if used := time.UnixMilli(e.LastAccessed).UTC(); used.After(exact.LastAccessed) {
			exact.LastAccessed = used
		}
		s.sessions.Remove(e)
		restored = sessions.RestoredOlder
	} else if max := s.max; s.sessions.Len() >= max {
		s.mu.Unlock()
		return "", sessions.Full(max)
	}
	s.insertLocked(exact)
	return restored, s.unlockAndWait(ctx, operation, s.enqueueLocked(exact.ID, encodeRecord(exact, body)))
}

// insertLocked adds a session whose last use may be earlier than one that the file has of its id.
func (s *Store) insertLocked(exact *sessions.Session) {
	s.sessions.Add(newEntry(exact.ID, exact.Header()))
	s.next.uses[exact.ID] = exact.LastAccessed.UnixMilli() // overwrites that in the file
}
