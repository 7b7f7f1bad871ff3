package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
)

// Defaults of Limits that an agent's flags name.
const (
	DefaultConnections       = 4096
	DefaultBodyBytes   int64 = 256 << 20
)

// Limits bound what clients may ask of the listeners. Zero values mean the defaults.
type Limits struct {
	// Connections at one time, of each listener; default DefaultConnections. Further ones wait to be accepted.
	Connections int
	// BodyBytes is how much memory the bodies of calls that are read or in progress may take, all together; default DefaultBodyBytes. Further
	// ones wait for it, and are refused with CodeUnavailable when it takes too long. Bodies of up to 64 KiB are not counted.
	BodyBytes int64
	// HeaderBytes is the most a request's headers may have; default 64 KiB.
	HeaderBytes int
	// HeaderTime is how long a request's headers may take to come; default 10 s.
	HeaderTime time.Duration
	// ReadTime is how long a whole request may take to come; default 2 min.
	ReadTime time.Duration
	// IdleTime is how long an unused connection is kept; default 2 min.
	IdleTime time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.Connections <= 0 {
		l.Connections = DefaultConnections
	}
	if l.BodyBytes <= 0 {
		l.BodyBytes = DefaultBodyBytes
	}
	if l.HeaderBytes <= 0 {
		l.HeaderBytes = 64 << 10
	}
	if l.HeaderTime <= 0 {
		l.HeaderTime = 10 * time.Second
	}
	if l.ReadTime <= 0 {
		l.ReadTime = 2 * time.Minute
	}
	if l.IdleTime <= 0 {
		l.IdleTime = 2 * time.Minute
	}
	return l
}

// Start opens the listeners and begins to look after leases. It fails with CodeInvalid where the listener would be unsafe, and
// with CodeUnavailable where an address cannot be had. It may be called once.
func (g *Gateway) Start() error {
	guard, err := newGuard(g.config)
	if err != nil {
		return err
	}
	if err := g.listen(guard); err != nil {
		for _, l := range g.listeners {
			l.Close()
		}
		return err
	}
	limits := g.config.Limits
	g.server = &http.Server{
		Handler: guard.protect(exact(g.mux)), ReadHeaderTimeout: limits.HeaderTime, ReadTimeout: limits.ReadTime, IdleTimeout: limits.IdleTime,
		MaxHeaderBytes: limits.HeaderBytes, ErrorLog: slog.NewLogLogger(g.logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, overSocket{}, c.LocalAddr().Network() == "unix")
		},
	}
	for _, l := range g.listeners {
		g.work.Go(func() {
			if err := g.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				g.logger.Error("a listener ended", "address", l.Addr().String(), "error", err)
			}
		})
	}
	g.work.Go(func() { g.keepContact(g.life) })
	return nil
}

// overSocket is the context's key of whether a request came over the Unix socket.
type overSocket struct{}

func (g *Gateway) listen(guard *guard) error {
	if g.config.Listen != "" {
		listener, err := net.Listen("tcp", g.config.Listen)
		if err != nil {
			return api.Errorf(api.CodeUnavailable, "the gateway cannot listen on %s; free the address or choose another with --listen: %w", g.config.Listen, err)
		}
		g.endpoint = guard.scheme() + "://" + advertised(g.config.Security.Advertise, listener.Addr())
		g.listeners = append(g.listeners, guard.secure(g.bound(listener)))
	}
	if g.config.Socket != "" {
		listener, err := listenSocket(g.config.Socket)
		if err != nil {
			return err
		}
		if g.endpoint == "" {
			g.endpoint = "unix:" + g.config.Socket
		}
		g.listeners = append(g.listeners, g.bound(listener))
	}
	return nil
}

// advertised is host and port that clients use: as configured, else as bound.
func advertised(configured string, addr net.Addr) string {
	if configured == "" {
		return addr.String()
	}
	if _, _, err := net.SplitHostPort(configured); err == nil {
		return configured
	}
	_, port, _ := net.SplitHostPort(addr.String())
	return net.JoinHostPort(configured, port)
}

// listenSocket makes the Unix socket that only this user may open. One that nobody listens on any more is replaced.
func listenSocket(path string) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, api.Errorf(api.CodeUnavailable, "another gateway listens on %s; one state folder is for one agent", path)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, api.Errorf(api.CodeInvalid, "%s is in the way of the gateway's socket and is no socket; remove it", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the socket %s that nobody listens on: %w", path, err)
		}
	}
	listener, err := listenPrivately(path)
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "the gateway cannot listen on the socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("keep the socket %s to this user: %w", path, err)
	}
	return listener, nil
}

// Endpoint is the base URL that leases name: http://HOST:PORT (https with TLS), or unix:PATH where there is no TCP listener. It is
// set by Start.
func (g *Gateway) Endpoint() string { return g.endpoint }

// boundListener accepts a bounded number of connections at one time.
type boundListener struct {
	net.Listener
	room   chan struct{}
	closed chan struct{}
	once   sync.Once
	open   atomic.Int64 // accepted and not closed
}

// bound bounds a listener of the gateway's, whose connections are counted from then on.
func (g *Gateway) bound(l net.Listener) net.Listener {
	b := bound(l, g.config.Limits.Connections)
	g.doors = append(g.doors, b)
	return b
}

func bound(l net.Listener, connections int) *boundListener {
	return &boundListener{Listener: l, room: make(chan struct{}, connections), closed: make(chan struct{})}
}

func (l *boundListener) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	l.open.Add(1)
	return &boundConn{Conn: conn, leave: func() { l.open.Add(-1); <-l.room }}, nil
}

func (l *boundListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type boundConn struct {
	net.Conn
	once  sync.Once
	leave func()
}

func (c *boundConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.leave)
	return err
}
