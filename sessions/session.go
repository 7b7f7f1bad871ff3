// Package sessions keeps what clients want remembered between calls: sessions, in a store that any worker of a pool can reach, so
// that a session belongs to no process.
//
// A Session is a value. A Store keeps sessions; its implementations are in packages named after their technology (memory,
// embedded, redis), and one suite, storetest, holds for all of them. HostCalls turns what a worker asks of its host into
// operations on a store.
package sessions

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Limits of a session. What exceeds them is refused with CodeInvalid (ids, life) or CodePayloadTooLarge (values).
const (
	// MaxID is in bytes.
	MaxID = 256
	// MaxBody bounds programs, data and metadata together, as JSON, in bytes.
	MaxBody = 1 << 20
	// MaxTTL is the longest life after the last use.
	MaxTTL = 366 * 24 * time.Hour
)

// Session is one client's state. Its JSON is the same over HTTP and over the wire protocol.
type Session struct {
	ID string `json:"id"`
	// Programs, Data and Metadata map keys to JSON. A session from a store has no nil map.
	Programs map[string]json.RawMessage `json:"programs"`
	Data     map[string]json.RawMessage `json:"data"`
	Metadata map[string]json.RawMessage `json:"metadata"`
	// Version is 1 after Create and grows by 1 with each Update. Reading and touching leave it alone.
	Version int64 `json:"version"`
	// CreatedAt and LastAccessed are in UTC, to the millisecond.
	CreatedAt    time.Time `json:"created_at"`
	LastAccessed time.Time `json:"last_accessed"`
	// TTL is how long the session lives after its last use.
	TTL spec.Duration `json:"ttl"`
}

// ExpiresAt is the first moment at which the session is gone, unless it is used before.
func (s *Session) ExpiresAt() time.Time { return s.LastAccessed.Add(s.TTL.D()) }

// Clone copies s so that changing the copy's maps leaves s alone. The values are shared: replace them, never write into them.
func (s *Session) Clone() *Session {
	c := *s
	c.Programs, c.Data, c.Metadata = maps.Clone(s.Programs), maps.Clone(s.Data), maps.Clone(s.Metadata)
	return &c
}

// body is the part of a session that its client writes.
type body struct {
	Programs map[string]json.RawMessage `json:"programs"`
	Data     map[string]json.RawMessage `json:"data"`
	Metadata map[string]json.RawMessage `json:"metadata"`
}

// Body is programs, data and metadata as one JSON document, the form in which stores keep them. It fails with CodePayloadTooLarge
// beyond MaxBody and with CodeInvalid for a value that is not JSON in UTF-8.
func (s *Session) Body() ([]byte, error) {
	encoded, err := encode(body{filled(s.Programs), filled(s.Data), filled(s.Metadata)})
	switch {
	case err != nil:
		return nil, api.Errorf(api.CodeInvalid, "session %s holds a value that is not JSON: %w", s.ID, err)
	case !utf8.Valid(encoded):
		return nil, api.Errorf(api.CodeInvalid, "session %s holds a value that is not UTF-8", s.ID)
	case len(encoded) > MaxBody:
		return nil, api.Errorf(api.CodePayloadTooLarge, "session %s would take %d bytes; a session may take %d: keep large things elsewhere and refer to them", s.ID, len(encoded), MaxBody)
	}
	return encoded, nil
}

// SetBody is the inverse of Body.
func (s *Session) SetBody(encoded []byte) error {
	var b body
	if err := json.Unmarshal(encoded, &b); err != nil {
		return fmt.Errorf("stored session %s: %w", s.ID, err)
	}
	s.Programs, s.Data, s.Metadata = filled(b.Programs), filled(b.Data), filled(b.Metadata)
	return nil
}

func filled(m map[string]json.RawMessage) map[string]json.RawMessage {
	if m == nil {
		return map[string]json.RawMessage{}
	}
	return m
}

// encode is json.Marshal without its escapes for HTML, which would make "<" six bytes of a session's limit.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// CheckID refuses ids that cannot travel in a header and in a path: an id is 1 to MaxID visible ASCII characters without a slash,
// and not "." or "..".
func CheckID(id string) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }
	switch {
	case id == "" || len(id) > MaxID:
		return api.Errorf(api.CodeInvalid, "a session's id has 1 to %d characters, not %d", MaxID, len(id))
	case strings.ContainsFunc(id, odd):
		return api.Errorf(api.CodeInvalid, "session id %q: use letters, digits and signs other than the slash", id)
	case id == "." || id == "..":
		return api.Errorf(api.CodeInvalid, "%q cannot be a session's id, since a path could not name it", id)
	}
	return nil
}

// temporary is how the ids of sessions begin that nobody named.
const temporary = "temp_"

// NewTemporaryID makes an id for the session of a call that names none.
func NewTemporaryID() string {
	var random [16]byte
	rand.Read(random[:]) // never fails
	return temporary + base64.RawURLEncoding.EncodeToString(random[:])
}

// IsTemporary reports whether an id is one of NewTemporaryID.
func IsTemporary(id string) bool { return strings.HasPrefix(id, temporary) }
