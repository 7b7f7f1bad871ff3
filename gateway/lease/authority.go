package lease

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/tempool/tempool/api"
)

// Authority proves the right to use a client's lease. It is the lease's token, or for leases without a token that the
// caller is an operator.
type Authority struct {
	token    string
	operator bool
	any      bool
}

// Token is the token, "" for none.
func (a Authority) Token() string { return a.token }

// Claims reports whether the caller claims any right at all: it has a token, or is an operator.
func (a Authority) Claims() bool { return a.token != "" || a.operator }

// Operator is the authority of this process itself, which may use every lease.
var Operator = Authority{operator: true, any: true}

// TokenAuthority is the authority of a token, "" for none; operator says that the caller may use leases that have no
// token.
func TokenAuthority(token string, operator bool) Authority {
	if token == "" {
		return Authority{operator: operator}
	}
	return Authority{token: token}
}

// Key is the hash of a lease's token; zero for a lease without one.
type Key struct {
	exists bool
	hash   [sha256.Size]byte
}

// KeyOf is the hash of the lease's token.
func KeyOf(lease api.Lease) Key {
	var k Key
	_, err := hex.Decode(k.hash[:], []byte(lease.TokenHash))
	k.exists = err == nil && lease.TokenHash != ""
	return k
}

// Opens reports whether the authority may use the lease with the key.
func (a Authority) Opens(k Key) bool {
	if a.token == "" {
		return a.any || a.operator && !k.exists
	}
	var buffer [api.MaxLeaseTokenBytes]byte
	return k.exists && len(a.token) <= len(buffer) && sha256.Sum256(buffer[:copy(buffer[:], a.token)]) == k.hash
}

// ErrForbidden refuses a caller without the right to use the lease.
func ErrForbidden(id string) *api.Error {
	return api.Errorf(api.CodeForbidden,
		"lease %s belongs to another client, or its token is missing; send the token that the checkout returned, as %s or "+
			"as %s~TOKEN", id, api.HeaderLeaseToken, id)
}
