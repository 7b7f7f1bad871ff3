package process

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// Variables that every subprocess finds in its environment.
const (
	EnvWorker      = "TEMPOOL_WORKER"      // the worker's name, such as python/0
	EnvIncarnation = "TEMPOOL_INCARNATION" // the incarnation's cookie: unique, and inherited by every descendant
	EnvFD          = "TEMPOOL_FD"          // protocol frames: the descriptor of the socket to read from, and to write to for who does not use the pipe
	EnvOut         = "TEMPOOL_OUT"         // protocol frames: the descriptor of the pipe to write to
	EnvPort        = "PORT"                // protocol none: the TCP port on 127.0.0.1 to listen on
	EnvSocket      = "TEMPOOL_SOCKET"      // protocol none: the path of a Unix socket to listen on instead
)

// newCookie returns host:worker:incarnation:state.random. The state is that of the state folder, so a later supervisor on the
// same folder knows its own.
func newCookie(host, worker string, incarnation int64, state string) string {
	return fmt.Sprintf("%s:%s:%d:%s.%s", host, worker, incarnation, state, randomHex(8))
}

// cookieOfState reports whether a supervisor on that state folder made the cookie.
func cookieOfState(cookie, host, state string) bool {
	return strings.HasPrefix(cookie, host+":") && strings.HasPrefix(cookie[strings.LastIndexByte(cookie, ':')+1:], state+".")
}

// cookieIn finds the cookie in an environment block: NAME=value, each ended by a zero byte.
func cookieIn(environ []byte) string {
	name := []byte(EnvIncarnation + "=")
	for len(environ) > 0 {
		entry, rest, _ := bytes.Cut(environ, []byte{0})
		if value, found := bytes.CutPrefix(entry, name); found {
			return string(value)
		}
		environ = rest
	}
	return ""
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails: crypto/rand ends the program first
	return hex.EncodeToString(b)
}
