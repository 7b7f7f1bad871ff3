package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/peer"
	"github.com/tempool/tempool/process/wire"
)

const (
	// writeTimeout is how long a client may leave an answer unread without reading any of it.
	writeTimeout = 30 * time.Second
	// writeSize is how much is written under one deadline, in bytes: about what a connection buffers.
	writeSize = 64 << 10
)

// connection is a client's connection. One goroutine serves it, one request after another. Each write has a deadline.
type connection struct {
	net.Conn
	peer     *socketPeer // of a Unix socket; nil over TCP
	share    *memoryShare
	readTime time.Duration // bounds the reading of a request
	host     string        // the client's address without its port; "" over a Unix socket

	always    *access.Principal // who sends every request, if it is not a token that says so
	principal *access.Principal // who sends the request in progress
	caller    *peer.Caller      // of the request in progress, if another gateway forwards it
	isHost    bool              // the client's certificate is that of a host
	body      []byte            // what was read of the body of the request in progress
	// of the call in progress, if it is not sampled; a value in its context would cost more than the decision
	unsampled wire.Trace
	client    string // whose connection it is, as far as the requests until now say

	state atomic.Int32 // opened, idle, active, left

	// Guarded by the lock of clientCounts.
	counted string // under which client's name the connection is counted
	left    bool

	writeBy time.Time    // the deadline of writes
	wrote   atomic.Int64 // when a write last succeeded, in nanoseconds since the epoch
	aborted atomic.Bool
	closing func() // of Close, any number of times
}

// Write writes b in parts, each of which the client must read within writeTimeout.
func (c *connection) Write(b []byte) (n int, err error) {
	for {
		now := time.Now()
		if c.writeBy.Sub(now) < writeTimeout*3/4 { // a deadline is not moved for every small write
			c.writeBy = now.Add(writeTimeout)
			if err := c.Conn.SetWriteDeadline(c.writeBy); err != nil {
				return n, err
			}
		}
		if c.aborted.Load() {
			return n, net.ErrClosed
		}
		written, err := c.Conn.Write(b[n:min(len(b), n+writeSize)])
		n += written
		if err != nil {
			return n, err
		}
		c.wrote.Store(now.UnixNano())
		if n == len(b) {
			return n, nil
		}
	}
}

// SetWriteDeadline bounds writes more closely than Write does. The server removes the deadline after each answer, and
// so would leave the next answer without one; Write's stays.
func (c *connection) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

func (c *connection) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// abort makes the write in progress, and all later ones, fail.
func (c *connection) abort() {
	c.aborted.Store(true)
	_ = c.Conn.SetWriteDeadline(time.Unix(1, 0))
}

// CloseWrite lets the client read an answer to a request whose body was not read.
func (c *connection) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

// Close closes the connection and frees its place.
func (c *connection) Close() error {
	err := c.Conn.Close()
	if c.closing != nil {
		c.closing()
	}
	return err
}

type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn, readTime time.Duration) context.Context {
	own := connectionIn(c)
	own.readTime = readTime
	return context.WithValue(ctx, connectionKey{}, own)
}

// connectionIn is the connection under TLS, or c itself.
func connectionIn(c net.Conn) *connection {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return c.(*connection)
}

func connectionOf(r *http.Request) *connection {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}

func requestTimeout(r *http.Request) time.Duration { return connectionOf(r).readTime }

func principalOf(r *http.Request) *access.Principal { return connectionOf(r).principal }
