package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/pool"
)

const (
	// maxHeaderBytes is the most that a request's headers may have, and idleTime the most that an unused connection stays
	// open.
	maxHeaderBytes = 64 << 10
	idleTime       = 2 * time.Minute
)

// Defaults of Limits that are flags of the agent.
const (
	DefaultConnections       = 4096
	DefaultBodyBytes   int64 = 256 << 20
)

// Limits bound the resources of clients. Zero values mean the defaults.
type Limits struct {
	// Connections is the number of open connections of each listener; default DefaultConnections. Further ones wait to be
	// accepted.
	Connections int
	// ClientConnections is the number of open connections of one token, certificate or address; default half of
	// Connections. Further ones are closed. Connections over the Unix socket are not counted.
	ClientConnections int
	// BodyBytes is the memory of all bodies, as far as they have arrived, and of all answers that are not read yet;
	// default DefaultBodyBytes. Further bodies wait for memory and are rejected with CodeUnavailable after 30 s; for a
	// further answer the one that is unread for the longest is dropped. Those of up to 64 KiB are not counted.
	BodyBytes int64
	// HeaderTime bounds the time to read a request's headers; default 10 s.
	HeaderTime time.Duration
	// ReadTime bounds the time to read a request; default 2 min.
	ReadTime time.Duration
}

func (l Limits) withDefaults() Limits {
	l.Connections = cmp.Or(max(l.Connections, 0), DefaultConnections)
	l.ClientConnections = cmp.Or(max(l.ClientConnections, 0), max(1, l.Connections/2))
	l.BodyBytes = cmp.Or(max(l.BodyBytes, 0), DefaultBodyBytes)
	l.HeaderTime = cmp.Or(max(l.HeaderTime, 0), 10*time.Second)
	l.ReadTime = cmp.Or(max(l.ReadTime, 0), 2*time.Minute)
	return l
}

// Start opens the listeners and begins to monitor Temporal. It fails with CodeInvalid if a listener would be unsafe,
// and with CodeUnavailable if an address is in use. It may be called once.
func (g *Gateway) Start() error {
	auth := g.auth
	auth.dashboard = g.dashboard
	if err := g.listen(auth); err != nil {
		for _, l := range g.listeners {
			l.Close()
		}
		return err
	}
	limits, logger := g.config.Limits, g.config.Logger
	var oneByOne http.Protocols
	oneByOne.SetHTTP1(true) // a connection has the state of its one request
	g.server = &http.Server{
		Protocols: &oneByOne,
		Handler:   g.protect(auth, rejectUnclean(g.askToLeave(g.mux))), ReadHeaderTimeout: limits.HeaderTime,
		ReadTimeout: limits.ReadTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ConnState:   g.open.track,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return withConnection(ctx, c, limits.ReadTime) },
	}
	if len(auth.files) > 0 {
		g.serving.Go(func() { watchFiles(g.life, auth.files, logger) })
	}
	for _, l := range g.listeners {
		g.serving.Go(func() {
			if err := g.server.Serve(l); !errors.Is(err, http.ErrServerClosed) && !g.open.leaving.Load() {
				logger.Error("a listener failed", "address", l.Addr().String(), "error", err)
			}
		})
	}
	if auth.loopback && auth.tokens == nil && !auth.mutual {
		logger.Info("any program on this host can use the gateway over TCP; set --tokens FILE to require a token",
			"address", g.config.Listen, "rights", access.Client.String())
	}
	g.Dispatcher.Start()
	g.mcp.Start()
	return nil
}

func (g *Gateway) listen(auth *authenticator) error {
	if g.config.Listen != "" {
		listener, err := net.Listen("tcp", g.config.Listen)
		if err != nil {
			return api.Errorf(api.CodeUnavailable, "cannot listen on %s; free the address or choose another with --listen: %w",
				g.config.Listen, err)
		}
		scheme, bounded := "http", g.bounded(listener)
		if auth.certificates != nil {
			scheme, bounded = "https", tls.NewListener(bounded, auth.certificates.config())
		}
		g.endpoint = cmp.Or(strings.TrimRight(g.config.Security.Advertise, "/"), scheme+"://"+listener.Addr().String())
		g.listeners, g.sockets = append(g.listeners, bounded), append(g.sockets, listener.(*net.TCPListener))
	}
	listener, err := listenSocket(g.config.Socket, g.config.Security.SocketGroup)
	if err != nil {
		return err
	}
	g.endpoint = cmp.Or(g.endpoint, "unix:"+g.config.Socket)
	g.listeners, g.sockets = append(g.listeners, g.bounded(listener)), append(g.sockets, listener)
	g.unlink = listener.unlink
	return nil
}

func (g *Gateway) bounded(l net.Listener) net.Listener {
	return newBoundedListener(l, g.config.Limits.Connections, g.clients, g.memory, g.config.Logger)
}

// Endpoint is the base URL that leases name: Security.Advertise, else http://HOST:PORT (https with TLS), or unix:PATH
// without a TCP listener. Start sets it.
func (g *Gateway) Endpoint() string { return g.endpoint }

// askToLeave lets a gateway that closes end each connection after its next answer.
func (g *Gateway) askToLeave(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.open.leaving.Load() {
			w.Header().Set("Connection", "close")
			if connectionOf(r).state.Load() == left {
				writeProblem(w, pool.ErrClosing) // as announced to the client
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// boundedListener accepts connections up to a number in all, and up to a number of one address. Those above the first
// wait, those above the second are closed.
type boundedListener struct {
	net.Listener
	places  chan struct{}
	clients *clientCounts
	memory  *memoryBudget
	logger  *slog.Logger
	warned  time.Time // of the goroutine that accepts
	closed  chan struct{}
	close   func() error // closes both; any number of times
}

func newBoundedListener(l net.Listener, most int, clients *clientCounts, memory *memoryBudget,
	logger *slog.Logger) *boundedListener {
	closed := make(chan struct{})
	return &boundedListener{Listener: l, places: make(chan struct{}, most), clients: clients, memory: memory,
		logger: logger, closed: closed, close: sync.OnceValue(func() error {
			close(closed)
			return l.Close()
		})}
}

// Accept waits for a place and a connection.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		if len(l.places) == cap(l.places) {
			l.warn("no further client is accepted until a connection is closed; find who keeps them open, or raise "+
				"--max-connections", "connections", cap(l.places))
		}
		select {
		case l.places <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
		conn, err := l.Listener.Accept()
		if err != nil {
			<-l.places
			if !errors.Is(err, net.ErrClosed) {
				l.warn("cannot accept a client, and tries again; if too many files are open, raise LimitNOFILE= in the unit, or "+
					"ulimit -n", "error", err)
			}
			return nil, err
		}
		c := &connection{Conn: conn}
		c.share = &memoryShare{memory: l.memory, owner: c}
		if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			c.host = tcp.IP.String()
		} else {
			c.peer = peerOf(conn)
		}
		c.closing = sync.OnceFunc(func() {
			l.clients.leave(c)
			<-l.places
		})
		if c.client = c.host; c.host != "" && !l.clients.enter(c, c.host) {
			_ = c.Close()
			continue
		}
		return c, nil
	}
}

// warn warns once a minute.
func (l *boundedListener) warn(message string, args ...any) {
	if time.Since(l.warned) > time.Minute {
		l.warned = time.Now()
		l.logger.Warn(message, append(args, "address", l.Addr().String())...)
	}
}

// Close stops Accept. Connections stay open.
func (l *boundedListener) Close() error { return l.close() }

// clientCounts counts connections by client: by address until a request says who the client is.
type clientCounts struct {
	most int // of one client

	mu    sync.Mutex
	count map[string]int
}

// enter counts a connection under a client's name, and no longer under its previous one. It reports false if the client
// has its most.
func (n *clientCounts) enter(c *connection, name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.counted == name || c.left {
		return true
	}
	if n.count[name] >= n.most {
		return false
	}
	n.leaveLocked(c)
	n.count[name]++
	c.counted = name
	return true
}

// leave counts a connection no longer.
func (n *clientCounts) leave(c *connection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.left = true
	n.leaveLocked(c)
}

func (n *clientCounts) leaveLocked(c *connection) {
	if c.counted == "" {
		return
	}
	if n.count[c.counted]--; n.count[c.counted] == 0 {
		delete(n.count, c.counted)
	}
	c.counted = ""
}
