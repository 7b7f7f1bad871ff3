package sessions

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Restored says what Store.Restore did with a session.
type Restored string

// Values of Restored.
const (
	RestoredNew     Restored = "created"  // the store had no such session
	RestoredOlder   Restored = "replaced" // the store had an older one
	RestoredKept    Restored = "kept"     // the store keeps the one that it has
	RestoredExpired Restored = "expired"  // the session to restore has expired
)

// Bounds of a session to restore, which may come from anywhere.
const (
	// maxRestoredVersion leaves room for more changes than a session can see, and a number in a script can hold it
	// exactly.
	maxRestoredVersion = 1 << 52
	// maxAhead is how far the clock that wrote the session's times may be ahead.
	maxAhead = 24 * time.Hour
)

// PrepareRestore returns the session that Restore stores for s at now, and its body; nil for one that has expired.
// Stores call it.
func PrepareRestore(s *Session, now time.Time) (*Session, []byte, error) {
	if err := CheckClientID(s.ID); err != nil {
		return nil, nil, err
	}
	exact, body, err := PrepareCopy(s)
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

// Replica is a Store that can hold exact copies of another store's sessions. Its errors are coded as those of Store.
type Replica interface {
	Store
	// Put stores a session exactly as it is, with its version, times and TTL, and replaces a session of the same id. It
	// ignores Max and evicts nothing. Putting an expired session deletes the session of that id. It fails with CodeInvalid
	// for a session that no store can have created, and with CodePayloadTooLarge.
	Put(ctx context.Context, s *Session) error
}

// PrepareCopy returns the session that Put stores for s, and its body. Stores call it.
func PrepareCopy(s *Session) (*Session, []byte, error) {
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
