package sessions

import (
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/tempool/tempool/api"
)

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

// NewTemporaryID makes an id for an anonymous session.
func NewTemporaryID() string {
	var random [16]byte
	rand.Read(random[:]) // never fails
	return temporaryPrefix + base64.RawURLEncoding.EncodeToString(random[:])
}

// IsTemporary reports whether NewTemporaryID made the id.
func IsTemporary(id string) bool { return strings.HasPrefix(id, temporaryPrefix) }
