// Package sessions stores client state between calls. A session lives in a store that every worker of a pool can reach,
// so it belongs to no process.
//
// A Session is a value. A Store holds sessions; the implementations are in packages named after their technology
// (embedded, redis), and the same tests run on each of them. HostCalls maps the host calls of workers to store
// operations.
package sessions

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Limits of a session. A store rejects what exceeds them with CodeInvalid (id, TTL) or CodePayloadTooLarge (values).
const (
	// MaxID is in bytes.
	MaxID = 256
	// MaxBody limits programs, data and metadata together, in bytes of JSON.
	MaxBody = 1 << 20
	// MaxTTL is the longest TTL.
	MaxTTL = 366 * 24 * time.Hour
)

// Session is one client's state. Its JSON is the same over HTTP and over the wire protocol.
type Session struct {
	ID string `json:"id"`
	// Programs, Data and Metadata map keys to JSON. They are never nil in a session from a store.
	Programs map[string]json.RawMessage `json:"programs"`
	Data     map[string]json.RawMessage `json:"data"`
	Metadata map[string]json.RawMessage `json:"metadata"`
	// Version is 1 after Create and grows by 1 with each Update. Get leaves it unchanged.
	Version int64 `json:"version"`
	// CreatedAt and LastAccessed are in UTC, to the millisecond.
	CreatedAt    time.Time `json:"created_at"`
	LastAccessed time.Time `json:"last_accessed"`
	// TTL is how long the session lives after its last use.
	TTL spec.Duration `json:"ttl"`
}

// ExpiresAt is the moment from which the session no longer exists, unless it is used before.
func (s *Session) ExpiresAt() time.Time { return s.LastAccessed.Add(s.TTL.D()) }

// Clone copies s and its maps. The values are shared: replace them, never modify their bytes.
func (s *Session) Clone() *Session {
	c := *s
	c.Programs, c.Data, c.Metadata = maps.Clone(s.Programs), maps.Clone(s.Data), maps.Clone(s.Metadata)
	return &c
}

// Equal reports whether two sessions are the same in every stored field. Nil stands for no session.
func Equal(a, b *Session) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.ID != b.ID || a.Header() != b.Header() {
		return false
	}
	bodyA, errA := a.Body()
	bodyB, errB := b.Body()
	return errA == nil && errB == nil && bytes.Equal(bodyA, bodyB)
}

// temporaryPrefix starts the ids of anonymous sessions.
const temporaryPrefix = "temp_"

// CheckID rejects an id that cannot be used in a header and in a URL path: an id is 1 to MaxID visible ASCII characters
// without a slash, and not "." or "..".
func CheckID(id string) error {
	forbidden := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }
	switch {
	case id == "" || len(id) > MaxID:
		return api.Errorf(api.CodeInvalid, "a session id must have 1 to %d characters, not %d", MaxID, len(id))
	case strings.ContainsFunc(id, forbidden):
		return api.Errorf(api.CodeInvalid, "invalid session id %q: use visible ASCII characters other than the slash", id)
	case id == "." || id == "..":
		return api.Errorf(api.CodeInvalid, "invalid session id %q: it cannot be used in a URL path", id)
	}
	return nil
}

// Reserved starts the ids of the sessions that an agent keeps for itself: those of MCP clients.
const Reserved = "mcp:"

// IsReserved reports whether the session is one of an agent.
func IsReserved(id string) bool { return strings.HasPrefix(id, Reserved) }

// CheckClientID is CheckID for clients and workers, who reach no session of an agent.
func CheckClientID(id string) error {
	if IsReserved(id) {
		return api.Errorf(api.CodeInvalid,
			"invalid session id %q: ids that begin with %s belong to MCP clients; use another id", id, Reserved)
	}
	return CheckID(id)
}

// NewTemporaryID makes an id for an anonymous session.
func NewTemporaryID() string {
	var random [16]byte
	rand.Read(random[:]) // never fails
	return temporaryPrefix + base64.RawURLEncoding.EncodeToString(random[:])
}

// IsTemporary reports whether NewTemporaryID made the id.
func IsTemporary(id string) bool { return strings.HasPrefix(id, temporaryPrefix) }
