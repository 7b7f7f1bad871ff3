package sessions

import (
	"bytes"
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Mirror is a store that can also be read without being used, and hold sessions exactly as another store has them: what a copy from
// store to store needs. Errors are coded as those of Store.
type Mirror interface {
	Store
	// IDs lists the sessions that live, as far as the store knows the one that was not used for longest first. It extends no life.
	IDs(ctx context.Context) ([]string, error)
	// Peek returns the sessions with these ids as they are, in that order, and nil for each that is not there. It extends no life.
	Peek(ctx context.Context, ids []string) ([]*Session, error)
	// Put stores a session exactly as it is, with its version, its times and its TTL, in the place of whatever has its id. Bounds do
	// not count: nothing is refused as too much and nothing makes way. A session that has expired takes away what has its id. It
	// fails with CodeInvalid for a session that no store can have made, and with CodePayloadTooLarge.
	Put(ctx context.Context, s *Session) error
}

// Exact is the session that Put stores for s, with its body. It is for stores.
func Exact(s *Session) (*Session, []byte, error) {
	if err := CheckID(s.ID); err != nil {
		return nil, nil, err
	}
	if s.Version < 1 || s.CreatedAt.IsZero() || s.LastAccessed.Before(s.CreatedAt) || s.TTL.D() < time.Millisecond || s.TTL.D() > MaxTTL {
		return nil, nil, api.Errorf(api.CodeInvalid, "session %s has version %d, was made at %s, last used at %s and lives for %s: no store has made that",
			s.ID, s.Version, s.CreatedAt, s.LastAccessed, s.TTL)
	}
	exact := s.Clone()
	exact.Programs, exact.Data, exact.Metadata = filled(s.Programs), filled(s.Data), filled(s.Metadata)
	exact.CreatedAt, exact.LastAccessed = stamp(s.CreatedAt), stamp(s.LastAccessed)
	exact.TTL = spec.Duration(s.TTL.D().Truncate(time.Millisecond))
	body, err := exact.Body()
	return exact, body, err
}

// Same reports whether two sessions, of which either may be nil for none, are the same in all that a store keeps of them.
func Same(a, b *Session) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.ID != b.ID || a.Version != b.Version || a.TTL != b.TTL || !a.CreatedAt.Equal(b.CreatedAt) || !a.LastAccessed.Equal(b.LastAccessed) {
		return false
	}
	one, err := a.Body()
	other, otherErr := b.Body()
	return err == nil && otherErr == nil && bytes.Equal(one, other)
}
