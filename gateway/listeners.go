package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/tempool/tempool/api"
)

// Defaults of Limits that are flags of the agent.
const (
	DefaultConnections       = 4096
	DefaultBodyBytes   int64 = 256 << 20
)

// Limits bound the resources of clients. Zero values mean the defaults.
type Limits struct {
	// Connections is the number of open connections of each listener; default DefaultConnections. Further ones wait to be accepted.
	Connections int
	// BodyBytes is the memory of all bodies of calls that are read or in progress; default DefaultBodyBytes. Further ones wait for memory
	// and are rejected with CodeUnavailable after 30 s. Bodies of up to 64 KiB are not counted.
	BodyBytes int64
	// HeaderBytes is the most that a request's headers may have; default 64 KiB.
	HeaderBytes int
	// HeaderTime bounds the time to read a request's headers; default 10 s.
	HeaderTime time.Duration
	// ReadTime bounds the time to read a request; default 2 min.
	ReadTime time.Duration
	// IdleTime bounds the time that an unused connection stays open; default 2 min.
	IdleTime time.Duration
}

func (l Limits) withDefaults() Limits {
	l.Connections = cmp.Or(max(l.Connections, 0), DefaultConnections)
	l.BodyBytes = cmp.Or(max(l.BodyBytes, 0), DefaultBodyBytes)
	l.HeaderBytes = cmp.Or(max(l.HeaderBytes, 0), 64<<10)
	l.HeaderTime = cmp.Or(max(l.HeaderTime, 0), 10*time.Second)
	l.ReadTime = cmp.Or(max(l.ReadTime, 0), 2*time.Minute)
	l.IdleTime = cmp.Or(max(l.IdleTime, 0), 2*time.Minute)
	return l
}

// Start opens the listeners and begins to monitor Temporal. It fails with CodeInvalid if a listener would be unsafe, and with
// CodeUnavailable if an address is in use. It may be called once.
func (g *Gateway) Start() error {
	auth, err := newAuthenticator(g.config)
	if err != nil {
		return err
	}
	if err := g.listen(auth); err != nil {
		for _, l := range g.listeners {
			l.Close()
		}
		return err
	}
	limits, logger := g.config.Limits, g.config.Logger
	g.server = &http.Server{
		Handler: auth.protect(rejectUnclean(g.mux)), ReadHeaderTimeout: limits.HeaderTime, ReadTimeout: limits.ReadTime, IdleTimeout: limits.IdleTime,
		MaxHeaderBytes: limits.HeaderBytes, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug), ConnState: g.countConnection,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, overSocket{}, c.LocalAddr().Network() == "unix")
		},
	}
	for _, l := range g.listeners {
		g.serving.Go(func() {
			if err := g.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				logger.Error("a listener failed", "address", l.Addr().String(), "error", err)
			}
		})
	}
	g.Dispatcher.Start()
	return nil
}

// overSocket is the context key of whether a request came over the Unix socket.
type overSocket struct{}

func isOverSocket(r *http.Request) bool {
	socket, _ := r.Context().Value(overSocket{}).(bool)
	return socket
}

// connections counts the open connections of the listener on a network.
func (g *Gateway) connections(network string) *atomic.Int64 {
	if network == "unix" {
		return &g.unix
	}
	return &g.tcp
}

func (g *Gateway) countConnection(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		g.connections(c.LocalAddr().Network()).Add(1)
	case http.StateClosed, http.StateHijacked:
		g.connections(c.LocalAddr().Network()).Add(-1)
	}
}

func (g *Gateway) listen(auth *authenticator) error {
	if g.config.Listen != "" {
		listener, err := net.Listen("tcp", g.config.Listen)
		if err != nil {
			return api.Errorf(api.CodeUnavailable, "cannot listen on %s; free the address or choose another with --listen: %w", g.config.Listen, err)
		}
		g.endpoint = auth.scheme() + "://" + advertised(g.config.Security.Advertise, listener.Addr())
		g.listeners = append(g.listeners, auth.withTLS(netutil.LimitListener(listener, g.config.Limits.Connections)))
	}
	if g.config.Socket != "" {
		listener, err := listenSocket(g.config.Socket)
		if err != nil {
			return err
		}
		if g.endpoint == "" {
			g.endpoint = "unix:" + g.config.Socket
		}
		g.listeners = append(g.listeners, netutil.LimitListener(listener, g.config.Limits.Connections))
	}
	return nil
}

// advertised is the host and port that clients use: the configured ones, else the bound ones.
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

// Endpoint is the base URL that leases name: http://HOST:PORT (https with TLS), or unix:PATH without a TCP listener. Start sets it.
func (g *Gateway) Endpoint() string { return g.endpoint }
