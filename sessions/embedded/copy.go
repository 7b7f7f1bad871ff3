package embedded

import (
	"context"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
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
		_, session, err := s.get(ctx, "read session "+id, id, false)
		if err != nil && !errors.Is(err, api.ErrSessionNotFound) {
			return nil, err
		}
		found[i] = session
	}
	return found, nil
}

// Put stores an exact copy of a session.
func (s *Store) Put(ctx context.Context, session *sessions.Session) error {
	exact, body, err := sessions.PrepareCopy(session)
	if err != nil {
		return err
	}
	return s.write(ctx, "copy session "+exact.ID, exact.ID, func(int64) (*batch, error) {
		return s.insertLocked(exact, body, s.sessions.Get(exact.ID)), nil
	})
}

// Restore stores a session of a backup unless the store has a newer one.
func (s *Store) Restore(ctx context.Context, session *sessions.Session) (restored sessions.Restored, err error) {
	exact, body, err := sessions.PrepareRestore(session, s.options.Now())
	if err != nil {
		return "", err
	}
	err = s.write(ctx, "restore session "+session.ID, session.ID, func(now int64) (*batch, error) {
		if exact == nil {
			restored = sessions.RestoredExpired
			return nil, nil
		}
		s.sweepLocked(now)
		e := s.sessions.Get(exact.ID)
		switch {
		case e == nil && s.sessions.Len() >= s.max:
			return nil, sessions.Full(s.max)
		case e == nil:
			restored = sessions.RestoredNew
		case !exact.Header().MayReplace(sessions.Header{Version: e.Value.version, CreatedAt: e.Value.createdAt}):
			restored = sessions.RestoredKept
			return nil, nil
		default:
			restored = sessions.RestoredOlder
			if used := time.UnixMilli(e.LastAccessed).UTC(); used.After(exact.LastAccessed) {
				exact.LastAccessed = used
			}
		}
		return s.insertLocked(exact, body, e), nil
	})
	return restored, err
}

// insertLocked adds a session, in place of replaced unless that is nil, whose last use may be earlier than one that the
// file has of its id.
func (s *Store) insertLocked(exact *sessions.Session, body []byte, replaced *entry) *batch {
	if replaced != nil {
		s.sessions.Remove(replaced)
	}
	s.sessions.Add(newEntry(exact.ID, exact.Header()))
	s.next.uses[exact.ID] = exact.LastAccessed.UnixMilli() // overwrites that in the file
	return s.enqueueLocked(exact.ID, encodeRecord(exact, body))
}
