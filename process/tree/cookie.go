package tree

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// CookieEnv is the environment variable with an incarnation's cookie. Every descendant inherits it.
const CookieEnv = "TEMPOOL_INCARNATION"

// NewCookie returns a unique cookie, host:worker:incarnation:state.random. state is the id of the agent's state
// directory, so a later agent on the same directory recognises the cookie.
func NewCookie(host, worker string, incarnation int64, state string) string {
	return fmt.Sprintf("%s:%s:%d:%s.%s", host, worker, incarnation, state, RandomHex(8))
}

// CookieBelongsTo reports whether an agent with this host id and state directory made the cookie.
func CookieBelongsTo(cookie, host, state string) bool {
	return strings.HasPrefix(cookie, host+":") &&
		strings.HasPrefix(cookie[strings.LastIndexByte(cookie, ':')+1:], state+".")
}

// parseCookie finds the cookie in an environment block: NAME=value, each ended by a zero byte.
func parseCookie(environ []byte) string {
	name := []byte(CookieEnv + "=")
	for len(environ) > 0 {
		entry, rest, _ := bytes.Cut(environ, []byte{0})
		if value, found := bytes.CutPrefix(entry, name); found {
			return string(value)
		}
		environ = rest
	}
	return ""
}

// RandomHex returns n random bytes as hexadecimal digits.
func RandomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails: crypto/rand ends the program first
	return hex.EncodeToString(b)
}
