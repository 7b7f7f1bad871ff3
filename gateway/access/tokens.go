package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// secretPrefix starts every secret, so that scanners recognise one that was published by mistake.
	secretPrefix = "tempool_"
	// maxSecretBytes bounds what a client may present as a secret.
	maxSecretBytes = 128
	// MaxNameBytes bounds the name of a token.
	MaxNameBytes = 64
	// MaxPriority is the highest priority of a call in a queue.
	MaxPriority = 9
)

// Token is one entry of a tokens file. The file has no secrets, only their hashes.
type Token struct {
	Name string `toml:"name" json:"name"`
	// SHA256 is the hash of the secret, as hexadecimal digits.
	SHA256 string `toml:"sha256" json:"sha256"`
	// Pools are globs of pool names; "*" is every pool.
	Pools  []string `toml:"pools" json:"pools"`
	Rights []string `toml:"rights" json:"rights"`
	// MaxPriority bounds the priority of the token's calls; without it, they may have any.
	MaxPriority *int      `toml:"max_priority,omitempty" json:"max_priority,omitempty"`
	CreatedAt   time.Time `toml:"created_at,omitempty" json:"created_at,omitzero"`
}

// NewSecret returns a random secret and its hash.
func NewSecret() (secret, hash string) {
	secret = secretPrefix + rand.Text() // 130 random bits
	sum := sha256.Sum256([]byte(secret))
	return secret, hex.EncodeToString(sum[:])
}

// check fails for an entry that cannot work.
func (t Token) check() error {
	if t.Name == "" || len(t.Name) > MaxNameBytes ||
		strings.ContainsFunc(t.Name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("invalid token name %q; use 1 to %d bytes without spaces", t.Name, MaxNameBytes)
	}
	if sum, err := hex.DecodeString(t.SHA256); err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("token %s: sha256 is %q; it must be the 64 hexadecimal digits of a SHA-256 hash", t.Name, t.SHA256)
	}
	if len(t.Pools) == 0 {
		return fmt.Errorf(`token %s: pools is missing; name globs of pools, such as ["py*"], or ["*"] for every pool`, t.Name)
	}
	for _, glob := range t.Pools {
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			return fmt.Errorf("token %s: %q is not a glob of pool names, such as py*", t.Name, glob)
		}
	}
	if _, err := parseRights(t.Rights); err != nil {
		return fmt.Errorf("token %s: %w", t.Name, err)
	}
	if m := t.MaxPriority; m != nil && (*m < 0 || *m > MaxPriority) {
		return fmt.Errorf("token %s: max_priority is %d; it must be from 0 to %d", t.Name, *m, MaxPriority)
	}
	return nil
}

// principal is the client that presents the token's secret. The token is valid.
func (t Token) principal() *Principal {
	rights, _ := parseRights(t.Rights)
	p := &Principal{Name: "token " + t.Name, Rights: rights, Pools: slices.Clone(t.Pools), MaxPriority: MaxPriority}
	if slices.Contains(t.Pools, "*") {
		p.Pools = nil
	}
	if t.MaxPriority != nil {
		p.MaxPriority = *t.MaxPriority
	}
	return p
}

type digest [sha256.Size]byte

// Tokens finds the client of a secret. It is safe for concurrent use.
type Tokens struct {
	path  string
	table atomic.Pointer[map[digest]*Principal]
}

// OpenTokens reads a tokens file. It fails with CodeInvalid for a file that cannot be read or holds a mistake.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	return t, t.Reload()
}

// Reload reads the file again. After an error the tokens are unchanged.
func (t *Tokens) Reload() error {
	file, err := ReadFile(t.path)
	if err != nil {
		return err
	}
	table := make(map[digest]*Principal, len(file.Tokens))
	for _, token := range file.Tokens {
		var key digest
		_, _ = hex.Decode(key[:], []byte(token.SHA256)) // ReadFile has checked it
		table[key] = token.principal()
	}
	t.table.Store(&table)
	return nil
}

// Lookup returns the client that has the secret, nil for an unknown one. It looks the secret's hash up, so that its
// duration says nothing about the secrets, and allocates nothing.
func (t *Tokens) Lookup(secret string) *Principal {
	if len(secret) > maxSecretBytes {
		return nil
	}
	var buffer [maxSecretBytes]byte
	return (*t.table.Load())[sha256.Sum256(buffer[:copy(buffer[:], secret)])]
}
