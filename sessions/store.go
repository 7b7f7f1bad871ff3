package sessions

import (
	"context"
	"fmt"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Store keeps sessions. Its methods are safe for concurrent use and honour ctx. Errors are coded; beside those named below, any
// method may fail with CodeStoreUnavailable when the store cannot be reached or is closed, and with CodeInvalid for an impossible
// id.
//
// An expired session is gone for every method from the very moment it expires, whenever its remains are swept.
type Store interface {
	// Create stores a new session with the programs, data, metadata and TTL of s, and the store's default for a TTL of 0. It
	// fails with CodeSessionExists, CodePayloadTooLarge, or CodeStoreFull.
	Create(ctx context.Context, s *Session) (*Session, error)
	// Get returns a session, which the caller may change, and extends its life. It fails with CodeSessionNotFound.
	Get(ctx context.Context, id string) (*Session, error)
	// Update stores what change makes of a session and extends its life. Only programs, data, metadata and TTL (0: the default)
	// can be changed. Updates at the same time are all kept: change is called again, with what is stored by then, if another came
	// first, so it must depend on nothing else. An error of change ends the update with that error and changes nothing. It fails
	// with CodeSessionNotFound and CodePayloadTooLarge.
	Update(ctx context.Context, id string, change func(*Session) error) (*Session, error)
	// Touch extends a session's life. It fails with CodeSessionNotFound.
	Touch(ctx context.Context, id string) error
	// Delete fails with CodeSessionNotFound.
	Delete(ctx context.Context, id string) error
	// List returns up to limit sessions whose ids follow after, in the order of their ids. It extends no life.
	List(ctx context.Context, after string, limit int) ([]*Session, error)
	// Count is the number of sessions that live.
	Count(ctx context.Context) (int, error)
	// DeleteExpired sweeps the remains of expired sessions and says how many it found.
	DeleteExpired(ctx context.Context) (int, error)
	// SetBounds replaces Max and OnFull of the store's Config. Sessions beyond a lower Max stay.
	SetBounds(max int, onFull OnFull)
	// Close ends the use of the store. Sessions stay where they are, but for those of a store in memory.
	Close() error
}

// OnFull says what Create does in a store that has Max sessions.
type OnFull string

// Words of OnFull.
const (
	Refuse OnFull = spec.OnFullRefuse // fail with CodeStoreFull
	Evict  OnFull = spec.OnFullEvict  // drop the session that was not used for longest
)

// Defaults of Config.
const (
	DefaultTTL = time.Hour
	DefaultMax = 10_000
	// SweepEvery is the rhythm in which whoever opened a store calls DeleteExpired.
	SweepEvery = time.Minute
)

// Config is what all stores have in common.
type Config struct {
	// TTL is the life of sessions that say nothing else. Default: DefaultTTL.
	TTL time.Duration
	// Max bounds the number of live sessions. Default: DefaultMax.
	Max int
	// OnFull is Refuse by default.
	OnFull OnFull
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// WithDefaults fills in what is missing.
func (c Config) WithDefaults() Config {
	if c.TTL <= 0 {
		c.TTL = DefaultTTL
	}
	if c.Max <= 0 {
		c.Max = DefaultMax
	}
	if c.OnFull == "" {
		c.OnFull = Refuse
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// New is the session that Create stores for s at the moment now, with its body. It is for stores.
func (c Config) New(s *Session, now time.Time) (*Session, []byte, error) {
	if err := CheckID(s.ID); err != nil {
		return nil, nil, err
	}
	now = stamp(now)
	return c.settle(&Session{
		ID: s.ID, Programs: s.Programs, Data: s.Data, Metadata: s.Metadata, Version: 1, CreatedAt: now, LastAccessed: now, TTL: s.TTL,
	})
}

// Changed is the session that Update stores at the moment now when it found current, with its body. It is for stores.
func (c Config) Changed(current *Session, change func(*Session) error, now time.Time) (*Session, []byte, error) {
	draft := current.Clone()
	if err := change(draft); err != nil {
		return nil, nil, err
	}
	accessed := stamp(now)
	if accessed.Before(current.LastAccessed) {
		accessed = current.LastAccessed
	}
	return c.settle(&Session{
		ID: current.ID, Programs: draft.Programs, Data: draft.Data, Metadata: draft.Metadata, Version: current.Version + 1,
		CreatedAt: current.CreatedAt, LastAccessed: accessed, TTL: draft.TTL,
	})
}

// settle checks a session that is to be stored, and encodes it.
func (c Config) settle(s *Session) (*Session, []byte, error) {
	if s.TTL == 0 {
		s.TTL = spec.Duration(c.TTL)
	}
	if s.TTL.D() < time.Millisecond || s.TTL.D() > MaxTTL {
		return nil, nil, api.Errorf(api.CodeInvalid, "session %s cannot live for %s: its ttl is 1ms to %s", s.ID, s.TTL, spec.Duration(MaxTTL))
	}
	s.TTL = spec.Duration(s.TTL.D().Truncate(time.Millisecond))
	encoded, err := s.Body()
	if err != nil {
		return nil, nil, err
	}
	s.Programs, s.Data, s.Metadata = filled(s.Programs), filled(s.Data), filled(s.Metadata)
	return s, encoded, nil
}

// stamp is a moment as sessions have it.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// NotFound is the error for a session that is not there.
func NotFound(id string) error {
	return api.Errorf(api.CodeSessionNotFound, "there is no session %s: it was never made, was deleted, or has expired", id)
}

// Exists is Create's error for an id that is taken.
func Exists(id string) error {
	return api.Errorf(api.CodeSessionExists, "session %s exists already: change it, or choose another id", id)
}

// Full is Create's error for a store that takes no more.
func Full(max int) error {
	return api.Errorf(api.CodeStoreFull, "the session store has its %d sessions (sessions.max): delete some, shorten their ttl, or raise that limit", max)
}

// Unavailable is the error for a store that does not answer.
func Unavailable(doing string, err error) error {
	return api.Errorf(api.CodeStoreUnavailable, "%s: the session store does not answer: %w", doing, err).After(time.Second)
}

// ErrClosed is what CodeStoreUnavailable wraps after Close.
var ErrClosed = fmt.Errorf("it was closed")
