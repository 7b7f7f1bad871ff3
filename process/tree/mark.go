package tree

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
)

// A Mark is a number that every descendant of an incarnation carries, whatever it does to its environment, session,
// descriptors and parent: on Linux the hard limit of file locks, which the kernel has not used since version 2.4. A
// process without privileges can lower that limit but never raise it, so every process whose limit is finite and not
// the agent's own descends from some worker. A Mark of 0 is none.
type Mark uint64

// minMarks is how many marks a program needs to choose from.
const minMarks = 1 << 32

// living are the marks of this program's incarnations whose trees are to live: Mark → struct{}.
var living sync.Map

// NewMark returns a random mark; 0 if this system has none, or leaves too few to choose from. Call Retire when its tree
// is gone.
func NewMark() Mark {
	limit := ownMark()
	if limit < 2*minMarks {
		return 0
	}
	return newMark(limit/2, limit)
}

// newMark returns a random mark from low on, and below high.
func newMark(low, high Mark) Mark {
	m := low + Mark(mathrand.Uint64N(uint64(high-low)))
	living.Store(m, struct{}{})
	return m
}

// Restore makes a mark of an earlier program one of this program's.
func (m Mark) Restore() {
	if m != 0 {
		living.Store(m, struct{}{})
	}
}

// Retire makes the adopted processes that still have the mark escaped ones.
func (m Mark) Retire() { living.Delete(m) }

// HasMarks reports whether this system has marks, which distinguish processes of workers from others. Otherwise a
// cookie is the only sign, and anybody can copy an environment.
func HasMarks() bool { return ownMark() >= 2*minMarks }

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
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, found := bytes.CutPrefix(entry, name); found {
			return string(value)
		}
	}
	return ""
}

// RandomHex returns n random bytes as hexadecimal digits.
func RandomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails: crypto/rand ends the program first
	return hex.EncodeToString(b)
}
