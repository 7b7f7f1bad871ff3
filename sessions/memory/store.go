// Package memory is a session store for tests: closing it deletes every session.
package memory

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/expirylru"
)

// record is a session without its id and times, which its entry has. body is never modified.
type record struct {
	version, createdAt int64
	body               []byte
}

type entry = expirylru.Entry[record]

// Store is a sessions.Store in memory.
type Store struct {
	config sessions.Config // except Max and OnFull

	// mu guards the fields below.
	mu       sync.Mutex
	sessions *expirylru.LRU[record]
	max      int
	onFull   sessions.OnFull
	closed   bool
}

// Open makes an empty store.
func Open(config sessions.Config) *Store {
	config = config.WithDefaults()
	return &Store{config: config, max: config.Max, onFull: config.OnFull, sessions: expirylru.New[record]()}
}

// lock locks the store for one operation and returns the current time; the caller unlocks mu unless lock fails.
func (s *Store) lock(ctx context.Context, operation string) (now time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return now, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return now, sessions.Unavailable(operation, sessions.ErrClosed)
	}
	return s.config.Now(), nil
}

// Create stores a new session.
func (s *Store) Create(ctx context.Context, draft *sessions.Session) (*sessions.Session, error) {
	now, err := s.lock(ctx, "create session "+draft.ID)
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	created, body, err := s.config.PrepareCreate(draft, now)
	if err != nil {
		return nil, err
	}
	s.sweepLocked(now)
	if s.sessions.Get(created.ID) != nil {
		return nil, sessions.Exists(created.ID)
	}
	if s.sessions.Len() >= s.max {
		if s.onFull != sessions.Evict {
			return nil, sessions.Full(s.max)
		}
		oldest := s.sessions.Oldest()
		s.sessions.Remove(oldest)
		s.config.Removed(sessions.Evicted, 1, []string{oldest.ID})
	}
	s.sessions.Add(newEntry(created, body))
	return created.Clone(), nil
}

func newEntry(s *sessions.Session, body []byte) *entry {
	h := s.Header()
	return &entry{ID: s.ID, LastAccessed: h.LastAccessed, TTL: h.TTL, Value: record{h.Version, h.CreatedAt, body}}
}

func decode(e *entry) (*sessions.Session, error) {
	h := sessions.Header{Version: e.Value.version, CreatedAt: e.Value.createdAt, LastAccessed: e.LastAccessed, TTL: e.TTL}
	s := h.Session(e.ID)
	return s, s.SetBody(e.Value.body)
}

// touchLocked extends a session's TTL and returns its entry.
func (s *Store) touchLocked(id string, now time.Time) (*entry, error) {
	if err := sessions.CheckID(id); err != nil {
		return nil, err
	}
	e := s.sessions.Live(id, now.UnixMilli())
	if e == nil {
		return nil, sessions.NotFound(id)
	}
	s.sessions.Touch(e, now.UnixMilli(), e.TTL)
	return e, nil
}

// Get returns a session and extends its TTL.
func (s *Store) Get(ctx context.Context, id string) (*sessions.Session, error) {
	_, session, err := s.get(ctx, "get session "+id, id)
	return session, err
}

func (s *Store) get(ctx context.Context, operation, id string) (*entry, *sessions.Session, error) {
	now, err := s.lock(ctx, operation)
	if err != nil {
		return nil, nil, err
	}
	defer s.mu.Unlock()
	e, err := s.touchLocked(id, now)
	if err != nil {
		return nil, nil, err
	}
	session, err := decode(e)
	return e, session, err
}

// Update changes a session. It calls change without holding the lock.
func (s *Store) Update(ctx context.Context, id string, change func(*sessions.Session) error) (*sessions.Session, error) {
	for {
		e, current, err := s.get(ctx, "update session "+id, id)
		if err != nil {
			return nil, err
		}
		next, body, err := s.config.PrepareUpdate(current, change, s.config.Now())
		if err != nil {
			return nil, err
		}
		if swapped, err := s.swap(ctx, e, current.Version, next, body); err != nil || swapped {
			return next.Clone(), err
		}
	}
}

// swap stores next and returns true if the session still has this entry and version.
func (s *Store) swap(ctx context.Context, e *entry, version int64, next *sessions.Session, body []byte) (bool, error) {
	now, err := s.lock(ctx, "update session "+next.ID)
	if err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	if s.sessions.Live(next.ID, now.UnixMilli()) != e || e.Value.version != version {
		return false, nil
	}
	e.Value.version, e.Value.body = next.Version, body
	s.sessions.Touch(e, next.LastAccessed.UnixMilli(), next.TTL.D().Milliseconds())
	return true, nil
}

// Touch extends a session's TTL.
func (s *Store) Touch(ctx context.Context, id string) error {
	now, err := s.lock(ctx, "touch session "+id)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	_, err = s.touchLocked(id, now)
	return err
}

// Delete removes a session.
func (s *Store) Delete(ctx context.Context, id string) error {
	now, err := s.lock(ctx, "delete session "+id)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	e, err := s.touchLocked(id, now)
	if err != nil {
		return err
	}
	s.sessions.Remove(e)
	return nil
}

// List returns sessions ordered by id.
func (s *Store) List(ctx context.Context, after string, limit int) ([]*sessions.Session, error) {
	now, err := s.lock(ctx, "list sessions")
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.sweepLocked(now)
	var entries []*entry
	for e := range s.sessions.All {
		if e.ID > after {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.ID, b.ID) })
	page := []*sessions.Session{}
	for _, e := range entries[:min(len(entries), max(limit, 0))] {
		session, err := decode(e)
		if err != nil {
			return nil, err
		}
		page = append(page, session)
	}
	return page, nil
}

// Count returns the number of live sessions.
func (s *Store) Count(ctx context.Context) (int, error) {
	now, err := s.lock(ctx, "count sessions")
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	s.sweepLocked(now)
	return s.sessions.Len(), nil
}

// DeleteExpired frees expired sessions.
func (s *Store) DeleteExpired(ctx context.Context) (int, error) {
	now, err := s.lock(ctx, "sweep sessions")
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.sweepLocked(now), nil
}

// sweepLocked removes expired sessions and returns their number.
func (s *Store) sweepLocked(now time.Time) int {
	expired := s.sessions.Sweep(now.UnixMilli())
	if len(expired) > 0 {
		s.config.Removed(sessions.Expired, len(expired), expirylru.IDs(expired))
	}
	return len(expired)
}

// SetBounds replaces the limits that Create enforces.
func (s *Store) SetBounds(max int, onFull sessions.OnFull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.max, s.onFull = max, onFull
}

// Close deletes all sessions.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.sessions = true, expirylru.New[record]()
	return nil
}
