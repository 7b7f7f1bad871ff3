package sessions

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

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
