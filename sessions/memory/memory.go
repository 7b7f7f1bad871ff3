// Package memory is a session store that forgets everything when it is closed, for tests and trials.
package memory

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/ledger"
	"github.com/tempool/tempool/spec"
)

// Store is a sessions.Store in memory.
type Store struct {
	config sessions.Config // but for Max and OnFull

	// mu guards what follows. Values of entries are bodies of sessions, which are never written into.
	mu     sync.Mutex
	ledger *ledger.Ledger[[]byte]
	max    int
	onFull sessions.OnFull
	closed bool
}

var _ sessions.Store = (*Store)(nil)

// Open makes an empty store.
func Open(config sessions.Config) *Store {
	config = config.WithDefaults()
	return &Store{config: config, max: config.Max, onFull: config.OnFull, ledger: ledger.New[[]byte]()}
}

// enter locks the store for one operation at the moment it returns.
func (s *Store) enter(ctx context.Context, doing string) (now time.Time, leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return now, nil, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return now, nil, sessions.Unavailable(doing, sessions.ErrClosed)
	}
	return s.config.Now(), s.mu.Unlock, nil
}

// Create stores a new session.
func (s *Store) Create(ctx context.Context, session *sessions.Session) (*sessions.Session, error) {
	now, leave, err := s.enter(ctx, "create session "+session.ID)
	if err != nil {
		return nil, err
	}
	defer leave()
	made, body, err := s.config.New(session, now)
	if err != nil {
		return nil, err
	}
	s.sweep(now)
	if s.ledger.Get(session.ID) != nil {
		return nil, sessions.Exists(session.ID)
	}
	if s.ledger.Len() >= s.max {
		if s.onFull != sessions.Evict {
			return nil, sessions.Full(s.max)
		}
		s.ledger.Remove(s.ledger.Oldest())
	}
	s.ledger.Add(&ledger.Entry[[]byte]{
		ID: made.ID, Version: made.Version, Created: made.CreatedAt.UnixMilli(), LastAccessed: made.LastAccessed.UnixMilli(),
		TTL: made.TTL.D().Milliseconds(), Value: body,
	})
	return made.Clone(), nil
}

func (s *Store) sweep(now time.Time) (found int) {
	s.ledger.Sweep(now.UnixMilli(), func(*ledger.Entry[[]byte]) { found++ })
	return found
}

// use notes that a session is used, and returns its entry.
func (s *Store) use(id string, now time.Time) (*ledger.Entry[[]byte], error) {
	if err := sessions.CheckID(id); err != nil {
		return nil, err
	}
	e := s.ledger.Live(id, now.UnixMilli())
	if e == nil {
		return nil, sessions.NotFound(id)
	}
	s.ledger.Touch(e, now.UnixMilli(), e.TTL)
	return e, nil
}

// Get returns a session and extends its life.
func (s *Store) Get(ctx context.Context, id string) (*sessions.Session, error) {
	_, session, err := s.get(ctx, "get session "+id, id)
	return session, err
}

func (s *Store) get(ctx context.Context, doing, id string) (*ledger.Entry[[]byte], *sessions.Session, error) {
	now, leave, err := s.enter(ctx, doing)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	e, err := s.use(id, now)
	if err != nil {
		return nil, nil, err
	}
	session, err := read(e)
	return e, session, err
}

// read makes a session of an entry.
func read(e *ledger.Entry[[]byte]) (*sessions.Session, error) {
	s := &sessions.Session{
		ID: e.ID, Version: e.Version, CreatedAt: time.UnixMilli(e.Created).UTC(), LastAccessed: time.UnixMilli(e.LastAccessed).UTC(),
		TTL: spec.Duration(time.Duration(e.TTL) * time.Millisecond),
	}
	return s, s.SetBody(e.Value)
}

// Update changes a session; change runs without the store's lock.
func (s *Store) Update(ctx context.Context, id string, change func(*sessions.Session) error) (*sessions.Session, error) {
	for {
		e, current, err := s.get(ctx, "update session "+id, id)
		if err != nil {
			return nil, err
		}
		next, body, err := s.config.Changed(current, change, s.config.Now())
		if err != nil {
			return nil, err
		}
		if stored, err := s.swap(ctx, e, current.Version, next, body); err != nil || stored {
			return next.Clone(), err
		}
	}
}

// swap stores next if the session is still e, in that version.
func (s *Store) swap(ctx context.Context, e *ledger.Entry[[]byte], version int64, next *sessions.Session, body []byte) (bool, error) {
	now, leave, err := s.enter(ctx, "update session "+next.ID)
	if err != nil {
		return false, err
	}
	defer leave()
	if s.ledger.Live(next.ID, now.UnixMilli()) != e || e.Version != version {
		return false, nil
	}
	e.Version, e.Value = next.Version, body
	s.ledger.Touch(e, next.LastAccessed.UnixMilli(), next.TTL.D().Milliseconds())
	return true, nil
}

// Touch extends a session's life.
func (s *Store) Touch(ctx context.Context, id string) error {
	now, leave, err := s.enter(ctx, "touch session "+id)
	if err != nil {
		return err
	}
	defer leave()
	_, err = s.use(id, now)
	return err
}

// Delete removes a session.
func (s *Store) Delete(ctx context.Context, id string) error {
	now, leave, err := s.enter(ctx, "delete session "+id)
	if err != nil {
		return err
	}
	defer leave()
	e, err := s.use(id, now)
	if err != nil {
		return err
	}
	s.ledger.Remove(e)
	return nil
}

// List returns sessions in the order of their ids.
func (s *Store) List(ctx context.Context, after string, limit int) ([]*sessions.Session, error) {
	now, leave, err := s.enter(ctx, "list sessions")
	if err != nil {
		return nil, err
	}
	defer leave()
	s.sweep(now)
	var found []*ledger.Entry[[]byte]
	for e := range s.ledger.All {
		if e.ID > after {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *ledger.Entry[[]byte]) int { return strings.Compare(a.ID, b.ID) })
	listed := []*sessions.Session{}
	for _, e := range found[:min(len(found), max(limit, 0))] {
		session, err := read(e)
		if err != nil {
			return nil, err
		}
		listed = append(listed, session)
	}
	return listed, nil
}

// Count counts the sessions that live.
func (s *Store) Count(ctx context.Context) (int, error) {
	now, leave, err := s.enter(ctx, "count sessions")
	if err != nil {
		return 0, err
	}
	defer leave()
	s.sweep(now)
	return s.ledger.Len(), nil
}

// DeleteExpired sweeps.
func (s *Store) DeleteExpired(ctx context.Context) (int, error) {
	now, leave, err := s.enter(ctx, "sweep sessions")
	if err != nil {
		return 0, err
	}
	defer leave()
	return s.sweep(now), nil
}

// SetBounds replaces the bounds that Create keeps.
func (s *Store) SetBounds(max int, onFull sessions.OnFull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.max, s.onFull = max, onFull
}

// Close forgets all sessions.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.ledger = true, ledger.New[[]byte]()
	return nil
}
