package sessions

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Purpose says which sessions Store.Put takes, and when it stores one in place of another of its id. Errors and metrics
// name it.
type Purpose string

// Values of Purpose.
const (
	// ToCreate stores a new session with the programs, data, metadata and TTL of the given one; a TTL of 0 means
	// that of Config.Settings. It fails with CodeSessionExists, or CodeStoreFull.
	ToCreate Purpose = "create"
	// ToRestore stores a session of a backup with its version, times and TTL, unless it has expired, or the store has one
	// of that id whose version is not lower or which was created later. If the one that it replaces was used later, that
	// counts. At Max it fails with CodeStoreFull and evicts nothing, whatever OnFull says. It fails with CodeInvalid for a
	// session that no store can have created.
	ToRestore Purpose = "restore"
	// ToCopy stores a session of another store exactly as it is, with its version, times and TTL, and replaces any of its
	// id. It ignores Max and evicts nothing. An expired session deletes that of its id. It fails with CodeInvalid for a
	// session that no store can have created.
	ToCopy Purpose = "copy"
)

// Operation names the operation in errors.
func (p Purpose) Operation(id string) string { return string(p) + " session " + id }

// Restored says what Store.Put did with a session.
type Restored string

// Values of Restored.
const (
	RestoredNew     Restored = "created"  // the store had no such session
	RestoredOlder   Restored = "replaced" // the store had another one
	RestoredKept    Restored = "kept"     // the store keeps the one that it has
	RestoredExpired Restored = "expired"  // the session to restore has expired
)

// Create puts a new session into a store, and returns it.
func Create(ctx context.Context, store Store, s *Session) (*Session, error) {
	created, _, err := store.Put(ctx, s, ToCreate)
	return created, err
}

// PreparePut returns the session that Put stores for s at now, and its body; no session for one to restore that has
// expired. Stores call it.
func (c Config) PreparePut(s *Session, to Purpose, now time.Time) (*Session, []byte, error) {
	switch to {
	case ToCreate:
		return c.prepareCreate(s, now)
	case ToRestore:
		return prepareRestore(s, now)
	}
	return prepareCopy(s)
}

func (c Config) prepareCreate(s *Session, now time.Time) (*Session, []byte, error) {
	if err := CheckID(s.ID); err != nil {
		return nil, nil, err
	}
	now = toMillisecond(now)
	return c.finalize(&Session{
		ID: s.ID, Programs: s.Programs, Data: s.Data, Metadata: s.Metadata, Version: 1, CreatedAt: now, LastAccessed: now,
		TTL: s.TTL,
	})
}

// Bounds of a session to restore, which may come from anywhere.
const (
	// maxRestoredVersion leaves room for more changes than a session can see, and a number in a script can hold it
	// exactly.
	maxRestoredVersion = 1 << 52
	// maxAhead is how far the clock that wrote the session's times may be ahead.
	maxAhead = 24 * time.Hour
)

func prepareRestore(s *Session, now time.Time) (*Session, []byte, error) {
	if err := CheckClientID(s.ID); err != nil {
		return nil, nil, err
	}
	exact, body, err := prepareCopy(s)
	switch {
	case err != nil:
		return nil, nil, err
	case exact.Version > maxRestoredVersion:
		return nil, nil, api.Errorf(api.CodeInvalid, "session %s has version %d, the limit is %d", s.ID, s.Version,
			int64(maxRestoredVersion))
	case exact.LastAccessed.After(now.Add(maxAhead)):
		return nil, nil, api.Errorf(api.CodeInvalid, "session %s was last used in the future, at %s: check the clocks", s.ID,
			s.LastAccessed)
	case !now.Before(exact.ExpiresAt()):
		return nil, nil, nil
	}
	return exact, body, nil
}

// MayReplace reports whether a restored session replaces a stored one: only if that has a lower version and was not
// created later, for a later session of the same id begins at version 1 again.
func (h Header) MayReplace(stored Header) bool {
	return stored.Version < h.Version && stored.CreatedAt <= h.CreatedAt
}

func prepareCopy(s *Session) (*Session, []byte, error) {
	if err := CheckID(s.ID); err != nil {
		return nil, nil, err
	}
	if s.Version < 1 || s.CreatedAt.IsZero() || s.LastAccessed.Before(s.CreatedAt) || s.TTL.D() < time.Millisecond ||
		s.TTL.D() > MaxTTL {
		return nil, nil, api.Errorf(api.CodeInvalid,
			"session %s is inconsistent and was not copied: version %d, created at %s, last used at %s, ttl %s",
			s.ID, s.Version, s.CreatedAt, s.LastAccessed, s.TTL)
	}
	exact := s.Clone()
	exact.Programs, exact.Data, exact.Metadata = orEmpty(s.Programs), orEmpty(s.Data), orEmpty(s.Metadata)
	exact.CreatedAt, exact.LastAccessed = toMillisecond(s.CreatedAt), toMillisecond(s.LastAccessed)
	exact.TTL = spec.Duration(s.TTL.D().Truncate(time.Millisecond))
	body, err := exact.Body()
	return exact, body, err
}
