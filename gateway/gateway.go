// Package gateway is the HTTP face of an agent: it serves calls, leases, sessions and the state of pools over TCP and a
// Unix socket. Package pool below it chooses the workers.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/mcp"
	"github.com/tempool/tempool/gateway/peer"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/gateway/ui"
	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/process/wire"
)

// MaxCallTimeout is the longest timeout that a call may ask for.
const MaxCallTimeout = 24 * time.Hour

// Config configures a Gateway. Its interfaces and functions, Events, Logs and Socket are required.
type Config struct {
	// Config configures the dispatch of calls; its Plain is the Gateway's own.
	pool.Config
	// Listen is a TCP address such as 127.0.0.1:7460; empty for none. Other than loopback addresses need Security.
	Listen string
	// Socket is the path of a Unix socket, created with mode 0600, or 0660 with Security.SocketGroup.
	Socket   string
	Security Security
	Limits   Limits
	// Sessions finds clients' sessions.
	Sessions Sessions
	// Copies moves sessions between stores.
	Copies Copies
	// Logs are those of this host's workers.
	Logs *logs.Store
	// Samples returns the newest samples of the workers of a pool with these numbers on this host, of all of them for nil.
	Samples func(pool string, slots []int) []api.RecentSamples
	// Hosts lists the base URLs of all hosts' gateways, whose certificates prove that they are peers.
	Hosts func(context.Context) ([]string, error)
	// Fleet is what the dashboard at /ui asks.
	Fleet ui.Fleet
	// Namespace is that of Temporal, and TemporalUI the base URL of its Web UI, to which the dashboard links; "" for no
	// links.
	Namespace, TemporalUI string
	// InWorker reports whether a process belongs to a worker of this host, which gets no right over the Unix socket.
	InWorker func(pid int) bool
}

// Gateway is a Dispatcher with an HTTP face. All methods are safe for concurrent use.
type Gateway struct {
	*pool.Dispatcher
	config       Config
	mux          *http.ServeMux
	server       *http.Server
	endpoint     string
	listeners    []net.Listener
	sockets      []syscall.Conn // those of the listeners
	memory       *memoryBudget
	serving      sync.WaitGroup
	clients      *clientCounts
	life         context.Context // of followed logs and events, and of the watch of the files of Security; Leave ends it
	endLife      context.CancelFunc
	backups      chan struct{} // the exports and imports of sessions under way
	eventsMissed atomic.Int64  // events that were dropped before the reader of a stream got to them
	open         openConnections
	dashboard    *ui.Dashboard
	mcp          *mcp.Endpoint
	auth         *authenticator
	peers        *peer.Peers
	unlink       func() error // removes the Unix socket's file
	leaveOnce    sync.Once
	leaveErr     error // of Leave
	closeOnce    sync.Once
}

// New returns a Gateway, which Start opens to clients. It fails with CodeInvalid if config cannot work.
func New(config Config) (*Gateway, error) {
	if strings.ContainsAny(config.Socket, "\x00\n") {
		return nil, api.Errorf(api.CodeInvalid, "Config.Socket %q is not a path", config.Socket)
	}
	config.Logger = cmp.Or(config.Logger, slog.Default())
	config.Plain = newPlainUpstream
	peers := new(peer.Peers)
	config.Peers = peers
	var endpoint *mcp.Endpoint
	config.Receive = func(pool, worker string, incarnation int64, m wire.Incoming) bool {
		return endpoint.Receive(pool, worker, incarnation, m)
	}
	config.Connect = func(pool string, conn *wire.Conn, era string) { endpoint.Connect(pool, conn, era) }
	auth, err := newAuthenticator(config)
	if err != nil {
		return nil, err
	}
	dispatcher := pool.New(config.Config)
	config.Limits = config.Limits.withDefaults()
	g := &Gateway{
		Dispatcher: dispatcher, peers: peers, auth: auth, config: config, mux: http.NewServeMux(),
		memory:  &memoryBudget{total: config.Limits.BodyBytes},
		clients: &clientCounts{most: config.Limits.ClientConnections, count: make(map[string]int)},
		open:    openConnections{all: make(map[net.Conn]*connection)}, backups: make(chan struct{}, maxBackups),
	}
	g.life, g.endLife = context.WithCancel(context.Background())
	endpoint = mcp.New(mcp.Config{HostID: config.HostID, Pool: dispatcher, Store: g.mcpStore, Peer: peers.At,
		Events: config.Events, Life: g.life, Logger: config.Logger})
	g.mcp = endpoint
	peers.Open(peer.Config{HostID: config.HostID, Queue: dispatcher, Status: config.Control.Status,
		Endpoint: g.Endpoint, Secret: g.auth.secret, TLS: g.auth.certificates.toPeers(), Logger: config.Logger})
	g.registerRoutes()
	g.registerDashboard()
	return g, nil
}

// Handle adds a route that is not the gateway's own, METHOD PATH, such as GET /metrics. It must be called before Start.
// A client needs the right access.Read on every pool.
func (g *Gateway) Handle(pattern string, handler http.Handler) {
	method, path, _ := strings.Cut(pattern, " ")
	g.mux.HandleFunc(pattern, route{method, path, access.Read, everyPool, handler.ServeHTTP}.guard(g.refer))
}

// Snapshot are the counts and gauges of a Gateway for metrics.
type Snapshot struct {
	pool.Snapshot
	// Connections are the open connections by the network of their listener: tcp, unix.
	Connections map[string]int64
	// EventsMissed counts the events that readers of the stream were too slow to get, and EventsOmitted, by type, those
	// that were not emitted because there were too many in a second.
	EventsMissed  int64
	EventsOmitted map[string]int64
	MCP           map[string]mcp.Counts // by pool
}

// Snapshot returns the current counts. It takes each pool's lock for a moment.
func (g *Gateway) Snapshot() Snapshot {
	s := Snapshot{Snapshot: g.Dispatcher.Snapshot(), Connections: make(map[string]int64),
		EventsMissed: g.eventsMissed.Load(), EventsOmitted: g.config.Events.Omitted(), MCP: g.mcp.Counts()}
	for _, l := range g.listeners {
		s.Connections[l.Addr().Network()] = 0
	}
	g.open.each(func(conn net.Conn, _ *connection) { s.Connections[conn.LocalAddr().Network()]++ })
	return s
}

// Leave rejects new calls, waits until ctx ends for those in flight, and closes the listeners. It fails with ctx's
// error if it cancelled calls. The gateway keeps its records of processes until Close.
func (g *Gateway) Leave(ctx context.Context) error {
	g.leaveOnce.Do(func() {
		g.endLife()
		g.Shut()
		g.peers.Close()
		if g.server != nil {
			g.open.leave()
			g.leaveErr = g.closeListeners(ctx)
			g.open.awaitClients(ctx) // Shutdown closes idle connections at once
			g.leaveErr = errors.Join(g.leaveErr, g.server.Shutdown(ctx))
		}
		g.leaveErr = errors.Join(g.leaveErr, g.Dispatcher.Leave(ctx))
	})
	return g.leaveErr
}

// Close does what Leave does, unless that was done, and ends the gateway.
func (g *Gateway) Close(ctx context.Context) error {
	err := g.Leave(ctx)
	g.closeOnce.Do(func() {
		g.mcp.Close(ctx)
		err = errors.Join(err, g.Dispatcher.Close(ctx))
		if g.server != nil {
			err = errors.Join(err, g.server.Close())
		}
		g.open.announcing.Wait()
		g.serving.Wait()
	})
	return err
}
