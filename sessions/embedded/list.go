package embedded

import (
	"context"
	"time"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

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
func (s *Store) Count(ctx context.Context) (n int, err error) {
	_, err = s.swept(ctx, "count sessions", func() { n = s.sessions.Len() })
	return n, err
}

// DeleteExpired removes expired sessions from memory at once and from the file with the next batch.
func (s *Store) DeleteExpired(ctx context.Context) (int, error) {
	return s.swept(ctx, "sweep sessions", func() {})
}

// swept looks at the sessions after a sweep, and returns how many that removed.
func (s *Store) swept(ctx context.Context, operation string, look func()) (removed int, err error) {
	now, err := s.lock(ctx, operation, anySession)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	removed = s.sweepLocked(now)
	look()
	return removed, nil
}
