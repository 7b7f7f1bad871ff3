// Package peer forwards requests to the gateways of other hosts, one hop: calls that find no free worker on this host,
// and requests about a lease or a worker that another host has.
package peer

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/pool"
)

// Caller is the header of a forwarded request: who sends it, as the first gateway has found out, and how the call may
// wait. Only other gateways may send it.
type Caller struct {
	From string `json:"from"` // the host of the first gateway
	To   string `json:"to"`   // the host that is meant
	Name string `json:"name"`
	// Rights and MaxPriority are those of the caller; Pools is nil for every pool.
	Rights      access.Rights `json:"rights"`
	Pools       []string      `json:"pools,omitempty"`
	MaxPriority int           `json:"max_priority,omitempty"`
	// PatienceMS and WaitedMS are of pool.Guest.
	PatienceMS int64 `json:"patience_ms,omitempty"`
	WaitedMS   int64 `json:"waited_ms,omitempty"`
	// Gated says that the body follows once the peer asks for it, which it does for a call when it has found a worker.
	// Empty says that the body then has no bytes.
	Gated bool `json:"gated,omitempty"`
	Empty bool `json:"empty,omitempty"`
}

// CallerOf describes the client of a request that concerns one pool.
func CallerOf(p *access.Principal, pool string) Caller {
	c := Caller{Name: p.Name, Rights: p.Rights, MaxPriority: p.MaxPriority}
	if !p.EveryPool() {
		c.Pools = []string{pool} // which the client may use; the list of all may be longer than a header
	}
	return c
}

// Principal is the client with the rights that both the first gateway and bound give it.
func (c *Caller) Principal(bound access.Rights) *access.Principal {
	return &access.Principal{Name: c.Name, Rights: c.Rights & bound, Pools: c.Pools,
		MaxPriority: min(max(c.MaxPriority, 0), access.MaxPriority)}
}

// Guest is how a forwarded call may wait.
func (c *Caller) Guest() pool.Guest {
	return pool.Guest{Patience: time.Duration(min(max(c.PatienceMS, 0), maxPatience.Milliseconds())) * time.Millisecond,
		Waited: time.Duration(min(max(c.WaitedMS, 0), time.Hour.Milliseconds())) * time.Millisecond}
}

// maxPatience bounds how long a forwarded call waits at the other gateway, which may be the wrong one for it.
const maxPatience = time.Second

// Forwarded reports whether a request claims to come from another gateway.
func Forwarded(h http.Header) bool {
	return h[api.HeaderForwarded] != nil || h[api.HeaderPeerToken] != nil
}

// ReadCaller takes the headers of a forwarded request from it, and returns the caller and the peer token.
func ReadCaller(h http.Header) (c *Caller, secret string, err error) {
	text := h[api.HeaderForwarded]
	secret = h.Get(api.HeaderPeerToken)
	h.Del(api.HeaderForwarded)
	h.Del(api.HeaderPeerToken)
	if len(text) != 1 {
		return nil, "", ErrNotAPeer
	}
	decoded, err := base64.RawURLEncoding.DecodeString(text[0])
	if err != nil || json.Unmarshal(decoded, &c) != nil || c == nil || c.Name == "" || len(c.Name) > maxName {
		return nil, "", ErrNotAPeer
	}
	return c, secret, nil
}

// maxName bounds the name of a caller: of a token, a certificate or an address.
const maxName = 512

// ErrNotAPeer is the answer to a request that does not prove that another gateway of the pool has sent it.
var ErrNotAPeer = api.Errorf(api.CodeForbidden, "the headers %s and %s are for the gateways of other hosts only",
	api.HeaderForwarded, api.HeaderPeerToken)

// write adds the headers of a forwarded request.
func (c Caller) write(h http.Header, secret string) {
	text, _ := json.Marshal(c) // its parts are strings and numbers
	h.Set(api.HeaderForwarded, base64.RawURLEncoding.EncodeToString(text))
	if secret != "" {
		h.Set(api.HeaderPeerToken, secret)
	}
}

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
