package sessions

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Store holds sessions. Its methods are safe for concurrent use and honour ctx. Errors are coded: in addition to the
// codes named below, any method may fail with CodeStoreUnavailable (the store does not answer or is closed) and with
// CodeInvalid (malformed id).
//
// An expired session does not exist for any method from the moment it expires, whether or not it was swept.
type Store interface {
	// Put stores a session for a purpose, and returns it as stored and what became of it; it returns no session if it
	// stored none. It fails with CodePayloadTooLarge and CodeInvalid, and as the purpose says.
	Put(ctx context.Context, s *Session, to Purpose) (stored *Session, did Restored, err error)
	// Get returns a session, which the caller may modify, and extends its TTL. It fails with CodeSessionNotFound.
	Get(ctx context.Context, id string) (*Session, error)
	// Update applies change to a session and extends its TTL. Changes to programs, data, metadata and TTL (0: that of
	// Config.Settings) are stored. No concurrent update is lost: if another update came first, Update calls change again
	// with the new session, so change must depend on nothing else. If change fails, Update returns that error and stores
	// nothing. It fails with CodeSessionNotFound and CodePayloadTooLarge.
	Update(ctx context.Context, id string, change func(*Session) error) (*Session, error)
	// Delete fails with CodeSessionNotFound.
	Delete(ctx context.Context, id string) error
	// IDs lists the live sessions, least recently used first as far as the store knows. It extends no TTL.
	IDs(ctx context.Context) ([]string, error)
	// Peek reads the sessions with these few ids, in that order: nil for each that does not exist. It extends no TTL.
	Peek(ctx context.Context, ids []string) ([]*Session, error)
	// Count returns the number of live sessions.
	Count(ctx context.Context) (int, error)
	// DeleteExpired frees expired sessions and returns how many it found.
	DeleteExpired(ctx context.Context) (int, error)
	// Close releases the store. Sessions persist, except in a memory store.
	Close() error
}

// SweepEvery is how often the owner of a store calls DeleteExpired.
const SweepEvery = time.Minute

// Config holds the settings that all stores share.
type Config struct {
	// Settings are those of the pool that uses the store, as they are now; it must return at once. A session without a
	// TTL of its own has theirs. A lower Max deletes no session. Default: those of spec.Default.
	Settings func() spec.Sessions
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Removed is called with the sessions that the store has expired or evicted: how many, and their ids if the store
	// knows which. It must return at once and not use the store. Default: no report.
	Removed func(why Removal, n int, ids []string)
}

// Removal says why a store has deleted a session that no client deleted.
type Removal string

// Values of Removal. A session expires when its TTL has passed; the store notices that at its next sweep or sooner.
const (
	Evicted Removal = "evicted"
	Expired Removal = "expired"
)

// WithDefaults fills in missing settings.
func (c Config) WithDefaults() Config {
	if c.Settings == nil {
		settings := spec.Default().Sessions
		c.Settings = func() spec.Sessions { return settings }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Removed == nil {
		c.Removed = func(Removal, int, []string) {}
	}
	return c
}

// PrepareUpdate returns the session that Update stores at now in place of current, and its body. Stores call it.
func (c Config) PrepareUpdate(current *Session, change func(*Session) error, now time.Time) (*Session, []byte, error) {
	draft := current.Clone()
	if err := change(draft); err != nil {
		return nil, nil, err
	}
	accessed := toMillisecond(now)
	if accessed.Before(current.LastAccessed) {
		accessed = current.LastAccessed
	}
	return c.finalize(&Session{
		ID: current.ID, Programs: draft.Programs, Data: draft.Data, Metadata: draft.Metadata, Version: current.Version + 1,
		CreatedAt: current.CreatedAt, LastAccessed: accessed, TTL: draft.TTL,
	})
}

// finalize applies the default TTL, checks the session and encodes it.
func (c Config) finalize(s *Session) (*Session, []byte, error) {
	s.TTL = cmp.Or(s.TTL, c.Settings().TTL)
	if s.TTL.D() < time.Millisecond || s.TTL.D() > MaxTTL {
		return nil, nil, api.Errorf(api.CodeInvalid, "session %s: ttl %s is out of range: choose 1ms to %s", s.ID, s.TTL,
			spec.Duration(MaxTTL))
	}
	s.TTL = spec.Duration(s.TTL.D().Truncate(time.Millisecond))
	encoded, err := s.Body()
	if err != nil {
		return nil, nil, err
	}
	s.Programs, s.Data, s.Metadata = orEmpty(s.Programs), orEmpty(s.Data), orEmpty(s.Metadata)
	return s, encoded, nil
}

// pageSize is how many whole sessions a list or a backup reads or restores at a time, and pageTimeout how long that may
// take.
const (
	pageSize    = 16
	pageTimeout = 30 * time.Second
)

// List yields clients' sessions with ids greater than after, ordered by id, until the first error. It extends no TTL.
func List(ctx context.Context, store Store, after string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		ids, err := store.IDs(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return id <= after || IsReserved(id) })
		slices.Sort(ids)
		peekAll(ctx, store, ids)(yield)
	}
}

// peekAll yields those of the sessions with these ids that exist, and ends with the first error.
func peekAll(ctx context.Context, store Store, ids []string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		for page := range slices.Chunk(ids, pageSize) {
			limited, cancel := context.WithTimeout(ctx, pageTimeout)
			found, err := store.Peek(limited, page)
			cancel()
			if err != nil {
				yield(nil, err)
				return
			}
			for _, s := range found {
				if s != nil && !yield(s, nil) {
					return
				}
			}
		}
	}
}

// toMillisecond is t in the precision and zone of sessions.
func toMillisecond(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// ErrClosed is the cause of CodeStoreUnavailable after Close.
var ErrClosed = errors.New("store is closed")

// NotFound is the error for a session that does not exist.
func NotFound(id string) error {
	return api.Errorf(api.CodeSessionNotFound,
		"session %s not found: it was never created, was deleted, or has expired", id)
}

// Exists is Put's error for an id that is in use.
func Exists(id string) error {
	return api.Errorf(api.CodeSessionExists, "session %s already exists: update it, or choose another id", id)
}

// Full is Put's error at the limit of the store.
func Full(max int) error {
	return api.Errorf(api.CodeStoreFull,
		"the session store is full at %d sessions (sessions.max): delete some, shorten their ttl, or raise that limit", max)
}

// Unavailable is the error for a store that does not answer.
func Unavailable(operation string, err error) error {
	return api.Errorf(api.CodeStoreUnavailable, "%s: session store unavailable: %w", operation, err).After(time.Second)
}
