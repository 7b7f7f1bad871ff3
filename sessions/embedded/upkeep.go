package embedded

import (
	"context"
	"slices"
	"time"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

// List returns sessions in the order of their ids.
func (s *Store) List(ctx context.Context, after string, limit int) ([]*sessions.Session, error) {
	const doing = "list sessions"
	now, err := s.enter(ctx, doing, anySession)
	if err != nil {
		return nil, err
	}
	var ids []string
	for e := range s.ledger.All {
		if e.ID > after && s.ledger.Live(e.ID, now) != nil {
			ids = append(ids, e.ID)
		}
	}
	s.mu.Unlock()
	slices.Sort(ids)
	listed := []*sessions.Session{}
	for _, id := range ids {
		if len(listed) >= limit {
			break
		}
		found, err := s.peek(ctx, doing, id)
		if err != nil {
			return nil, err
		}
		if found != nil {
			listed = append(listed, found)
		}
	}
	return listed, nil
}

// peek reads a session without using it; nil if it is gone.
func (s *Store) peek(ctx context.Context, doing, id string) (*sessions.Session, error) {
	now, err := s.enter(ctx, doing, id)
	if err != nil {
		return nil, err
	}
	e := s.ledger.Live(id, now)
	if e == nil {
		s.mu.Unlock()
		return nil, nil
	}
	accessed, ttl, record := e.LastAccessed, e.TTL, s.unwritten(id)
	s.mu.Unlock()
	found, err := s.read(doing, id, record)
	if found != nil {
		found.LastAccessed, found.TTL = time.UnixMilli(accessed).UTC(), spec.Duration(time.Duration(ttl)*time.Millisecond)
	}
	return found, err
}

// Count counts the sessions that live.
func (s *Store) Count(ctx context.Context) (int, error) {
	now, err := s.enter(ctx, "count sessions", anySession)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	s.sweep(now)
	return s.ledger.Len(), nil
}

// DeleteExpired sweeps the ledger at once; the file follows with the next write.
func (s *Store) DeleteExpired(ctx context.Context) (int, error) {
	now, err := s.enter(ctx, "sweep sessions", anySession)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.sweep(now), nil
}

// SetBounds replaces the bounds that Create keeps.
func (s *Store) SetBounds(max int, onFull sessions.OnFull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.max, s.onFull = max, onFull
}

// SetSync replaces Options.Sync.
func (s *Store) SetSync(sync Sync) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sync = sync
}

// Close writes what is not written yet and closes the file.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		defer s.mu.Unlock()
		return s.closeErr
	}
	s.closed = true
	for e := range s.ledger.All {
		if e.LastAccessed > e.Value.accessed {
			s.next.uses[e.ID] = e.LastAccessed
		}
	}
	s.mu.Unlock()
	close(s.closing)
	s.committer.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		s.closeErr = errBroken("close the session store", s.broken)
	}
	if err := guard(s.db.Close); err != nil && s.closeErr == nil {
		s.closeErr = sessions.Unavailable("close the session store", err)
	}
	return s.closeErr
}
