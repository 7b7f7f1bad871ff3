package peer

import (
	"crypto/sha256"
	"crypto/subtle"
	"os"
	"strings"
	"sync/atomic"

	"github.com/tempool/tempool/api"
)

// Bounds of a peer token, in bytes.
const (
	minSecret = 32
	maxSecret = 4096
)

// Secret is the peer token, the same on all hosts. It is safe for concurrent use.
type Secret struct {
	path  string
	value atomic.Pointer[string]
}

// OpenSecret reads the file of a peer token. It fails with CodeInvalid for one that cannot be read, that others than
// its owner may read, or that is too short to be secret.
func OpenSecret(path string) (*Secret, error) {
	s := &Secret{path: path}
	return s, s.Reload()
}

// Reload reads the file again. After an error the token is unchanged.
func (s *Secret) Reload() error {
	info, err := os.Stat(s.path)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "cannot read --peer-token: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return api.Errorf(api.CodeInvalid, "--peer-token %s has mode %#o, so other users may use it; run chmod 600 %s",
			s.path, mode, s.path)
	}
	text, err := os.ReadFile(s.path)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "cannot read --peer-token: %w", err)
	}
	value := strings.TrimSpace(string(text))
	if len(value) < minSecret || len(value) > maxSecret ||
		strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return api.Errorf(api.CodeInvalid,
			"--peer-token %s must hold %d to %d printable characters without spaces; openssl rand -hex 32 makes them", s.path,
			minSecret, maxSecret)
	}
	s.value.Store(&value)
	return nil
}

// Matches reports whether a peer has presented the token, in constant time.
func (s *Secret) Matches(presented string) bool {
	a, b := sha256.Sum256([]byte(*s.value.Load())), sha256.Sum256([]byte(presented))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// present is the token to send; "" for a nil Secret.
func (s *Secret) present() string {
	if s == nil {
		return ""
	}
	return *s.value.Load()
}
