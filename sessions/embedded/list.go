package embedded

import (
	"context"
	"slices"
	"time"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

// List returns sessions ordered by id.
func (s *Store) List(ctx context.Context, after string, limit int) ([]*sessions.Session, error) {
	const operation = "list sessions"
	now, err := s.lock(ctx, operation, anySession)
	if err != nil {
		return nil, err
	}
	var ids []string
	for e := range s.sessions.All {
		if e.ID > after && s.sessions.Live(e.ID, now) != nil {
			ids = append(ids, e.ID)
		}
	}
	s.mu.Unlock()
	slices.Sort(ids)
	page := []*sessions.Session{}
	for _, id := range ids {
		if len(page) >= limit {
			break
		}
		found, err := s.peek(ctx, operation, id)
		if err != nil {
			return nil, err
		}
		if found != nil {
			page = append(page, found)
		}
	}
	return page, nil
}

// peek reads a session without extending its TTL. It returns nil if the session does not exist.
func (s *Store) peek(ctx context.Context, operation, id string) (*sessions.Session, error) {
	now, err := s.lock(ctx, operation, id)
	if err != nil {
		return nil, err
	}
	e := s.sessions.Live(id, now)
	if e == nil {
		s.mu.Unlock()
		return nil, nil
	}
	accessed, ttl, record := e.LastAccessed, e.TTL, s.unwrittenLocked(id)
	s.mu.Unlock()
	found, err := s.read(operation, id, record)
	if found != nil {
		found.LastAccessed, found.TTL = time.UnixMilli(accessed).UTC(), spec.Duration(time.Duration(ttl)*time.Millisecond)
	}
	return found, err
}

// Count returns the number of live sessions.
func (s *Store) Count(ctx context.Context) (int, error) {
	now, err := s.lock(ctx, "count sessions", anySession)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	s.sweepLocked(now)
	return s.sessions.Len(), nil
}

// DeleteExpired removes expired sessions from memory at once and from the file with the next batch.
func (s *Store) DeleteExpired(ctx context.Context) (int, error) {
	now, err := s.lock(ctx, "sweep sessions", anySession)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.sweepLocked(now), nil
}
