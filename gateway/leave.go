package gateway

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// leavingTime is how long a gateway that shuts down still accepts connections, to answer those that are being opened;
	// those that the kernel has by then are accepted, too, if that takes no longer than leaveTimeout.
	leavingTime = 100 * time.Millisecond
	// leaveTimeout is how long a client has to close a connection after the gateway has announced on it that it shuts
	// down.
	leaveTimeout = 500 * time.Millisecond
)

// What a connection is doing.
const (
	opened int32 = iota // it has not carried a request
	idle
	active // it carries a request
	left   // the client was notified that the connection takes no further request
)

// openConnections knows the connections of clients, so that a gateway that shuts down can end them. An idle connection
// cannot just be closed: a request may be in transit on it, and its client could not know whether it was started.
type openConnections struct {
	leaving    atomic.Bool
	announcing sync.WaitGroup // on connections whose handshake may be in progress; they end with their connections
	mu         sync.Mutex
	all        map[net.Conn]*connection
}

// track follows a connection from one state to the next.
func (o *openConnections) track(conn net.Conn, state http.ConnState) {
	c := connectionIn(conn)
	switch state {
	case http.StateNew:
		o.mu.Lock()
		o.all[conn] = c
		o.mu.Unlock()
	case http.StateActive:
		if !c.state.CompareAndSwap(idle, active) {
			c.state.CompareAndSwap(opened, active)
		}
	case http.StateIdle:
		c.state.CompareAndSwap(active, idle)
		if o.leaving.Load() {
			o.announceClose(conn, c, idle)
		}
	case http.StateClosed, http.StateHijacked:
		o.mu.Lock()
		delete(o.all, conn)
		o.mu.Unlock()
	}
}

// leave announces the shutdown on the idle connections, and on the others as soon as they are idle.
func (o *openConnections) leave() {
	o.leaving.Store(true)
	o.each(func(conn net.Conn, c *connection) { o.announceClose(conn, c, idle) })
}

// awaitClients waits until all clients have left, each with the answer to its request. After the announcement a client
// has leaveTimeout. A new connection has as long for its first request; a client may also keep one that it opened and
// did not need, so the announcement follows on those.
func (o *openConnections) awaitClients(ctx context.Context) {
	if o.awaitNone(ctx) {
		return
	}
	o.each(func(conn net.Conn, c *connection) { o.announceClose(conn, c, opened) })
	o.awaitNone(ctx)
}

// awaitNone waits until no connection is open, and reports whether that is so. It gives up leaveTimeout after the last
// request.
func (o *openConnections) awaitNone(ctx context.Context) bool {
	deadline := time.Now().Add(leaveTimeout)
	for ctx.Err() == nil {
		var some, carrying bool
		o.each(func(_ net.Conn, c *connection) { some, carrying = true, carrying || c.state.Load() == active })
		if carrying {
			deadline = time.Now().Add(leaveTimeout)
		}
		if !some || !time.Now().Before(deadline) {
			return !some
		}
		sleep.For(ctx.Done(), leavingTime/20)
	}
	return false
}

func (o *openConnections) each(f func(net.Conn, *connection)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for conn, c := range o.all {
		f(conn, c)
	}
}

// announceClose answers a request that may be in transit on a connection, if that is in this state, idle or opened: it
// was not started. A client without a request reads an unsolicited 408, which means that the connection ends (RFC 9110,
// section 15.5.9).
func (o *openConnections) announceClose(conn net.Conn, c *connection, state int32) {
	if !c.state.CompareAndSwap(state, left) {
		return
	}
	secure, isSecure := conn.(*tls.Conn)
	if !isSecure || state == idle {
		writeLeavingAnswer(conn, c)
		return
	}
	o.announcing.Go(func() {
		if secure.ConnectionState().HandshakeComplete { // waits for a handshake in progress
			writeLeavingAnswer(conn, c)
		}
	})
}

func writeLeavingAnswer(conn net.Conn, c *connection) {
	out := io.Writer(c.Conn) // no deadline to keep: the answer fits into the buffer of a connection without a request
	if _, isSecure := conn.(*tls.Conn); isSecure {
		out = conn
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(leavingTime))
	if _, err := out.Write(leavingAnswer()); err == nil {
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	}
}

// leavingAnswer is a whole HTTP answer.
var leavingAnswer = sync.OnceValue(func() []byte {
	p := problemOf(pool.ErrClosing)
	p.Status, p.Title = http.StatusRequestTimeout, http.StatusText(http.StatusRequestTimeout)
	body, _ := json.Marshal(p) // p is a constant
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: application/problem+json\r\n"+
		"Cache-Control: no-store\r\nContent-Length: %d\r\n\r\n%s", p.Status, p.Title, len(body), body)
})

// closeListeners stops accepting connections. Over a Unix socket no new one can come once its file is gone; connections
// that were opened just before are accepted until leavingTime has passed, and on a busy machine for leaveTimeout more:
// the kernel resets those that were not.
func (g *Gateway) closeListeners(ctx context.Context) (err error) {
	err = g.unlink()
	sleep.For(ctx.Done(), leavingTime)
	deadline := time.Now().Add(leaveTimeout)
	for i, l := range g.listeners {
		for isWaiting(g.sockets[i]) && time.Now().Before(deadline) && sleep.For(ctx.Done(), leavingTime/20) {
		}
		err = errors.Join(err, l.Close())
	}
	return err
}

// isWaiting reports whether a connection waits to be accepted by a listener.
func isWaiting(listener syscall.Conn) (waiting bool) {
	raw, err := listener.SyscallConn()
	return err == nil && raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waiting = err == nil && n > 0
	}) == nil && waiting
}
