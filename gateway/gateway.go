// Package gateway is the agent's HTTP face and the whole of the data plane: calls go from a client through a Gateway to the
// subprocess's own socket and back, and never through Temporal.
//
// A call runs under a lease, always. A client brings its own (Call, POST /v1/leases/{id}/call/{method}), and the gateway refuses
// any that is not the newest of its worker; or it names only a pool (CallPool, POST /v1/pools/{pool}/call/{method}), and the
// gateway keeps leases on this host's workers for as long as there are calls for them.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// Defaults of Config.
const (
	DefaultCallTimeout = 10 * time.Minute
	DefaultFenceAfter  = 5 * time.Minute
	DefaultCheckEvery  = 5 * time.Second
	DefaultHoldFor     = 5 * time.Minute
)

// MaxCallTimeout is the longest a call may ask for.
const MaxCallTimeout = 24 * time.Hour

// Config is what a Gateway needs. HostID, Processes and one of Client and Control have no default, and there must be a Listen or a
// Socket for clients that are not in this process.
type Config struct {
	HostID string
	// Listen is a TCP address such as 127.0.0.1:7460; empty for none. Beyond loopback it needs Security.
	Listen string
	// Socket is the path of a Unix socket, made with mode 0600; empty for none.
	Socket   string
	Security Security
	Limits   Limits
	// Client reaches Temporal; Control, if it is set, is asked instead.
	Client    *tempool.Client
	Control   Control
	Processes Processes
	// Sessions finds clients' sessions; without it there are no routes to them.
	Sessions Sessions
	// Copies moves sessions from store to store; without it there are no routes to that.
	Copies Copies
	// Affinity remembers which worker served a session; nil remembers nothing.
	Affinity Affinity
	// Score tells how fit a worker is, from 0 to 100. Default: all are alike.
	Score func(worker string, incarnation int64) float64
	// CallTimeout bounds a call that brings no deadline of its own. Default: DefaultCallTimeout.
	CallTimeout time.Duration
	// FenceAfter is how long the gateway serves under its own leases without hearing of Temporal. Default: DefaultFenceAfter.
	FenceAfter time.Duration
	// HoldFor is how long the gateway keeps a lease of its own that is always in use, spread at random by a fifth up and down. Then it
	// gives it back between two calls, which reports what was counted and lets the worker's workflow continue as new; after twice
	// that, no new call begins until it could. Default: DefaultHoldFor.
	HoldFor time.Duration
	// CheckEvery is the rhythm at which it looks whether Temporal answers. Default: DefaultCheckEvery.
	CheckEvery time.Duration
	// Logger's default is slog.Default().
	Logger *slog.Logger
}

// Affinity is a preference for the worker that served a session before. Its methods must be fast and safe for concurrent use.
type Affinity interface {
	Lookup(pool, session string) (worker string, found bool)
	// Follow notes who serves a session that was bound to was, "" for nobody, when a worker was looked for.
	Follow(pool, session, was, worker string)
}

// Gateway carries calls to the subprocesses of one host. All methods are safe for concurrent use.
type Gateway struct {
	config    Config
	logger    *slog.Logger
	mux       *http.ServeMux
	server    *http.Server
	endpoint  string
	listeners []net.Listener
	doors     []*boundListener // below the listeners
	verifier  *verifier
	contact   *contact
	bodies    *budget
	life      context.Context // ends with Close; every goroutine of the gateway lives in it
	end       context.CancelFunc
	work      sync.WaitGroup
	closeOnce sync.Once
	stopping  chan struct{} // closed when Close begins
	closed    chan struct{}

	mu      sync.RWMutex
	closing bool
	desks   map[string]*desk

	deskKept time.Duration // see the constant; tests shorten it
}

// New makes a Gateway of config, which Start opens to clients. A config that cannot work is CodeInvalid.
func New(config Config) (*Gateway, error) {
	if config.Control == nil && config.Client != nil {
		config.Control = ControlOf(config.Client)
	}
	switch {
	case config.HostID == "":
		return nil, api.Errorf(api.CodeInvalid, "a gateway needs a host id")
	case config.Control == nil || config.Processes == nil:
		return nil, api.Errorf(api.CodeInvalid, "a gateway needs a control plane and processes")
	case strings.ContainsAny(config.Socket, "\x00\n"):
		return nil, api.Errorf(api.CodeInvalid, "the socket's path %q is not a path", config.Socket)
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.CallTimeout <= 0 {
		config.CallTimeout = DefaultCallTimeout
	}
	if config.FenceAfter <= 0 {
		config.FenceAfter = DefaultFenceAfter
	}
	if config.CheckEvery <= 0 {
		config.CheckEvery = DefaultCheckEvery
	}
	if config.HoldFor <= 0 {
		config.HoldFor = DefaultHoldFor
	}
	config.Limits = config.Limits.withDefaults()
	g := &Gateway{
		config: config, logger: config.Logger, mux: http.NewServeMux(), desks: make(map[string]*desk), closed: make(chan struct{}), stopping: make(chan struct{}),
		deskKept: deskKept,
	}
	g.life, g.end = context.WithCancel(context.Background())
	g.verifier = newVerifier(config.Control)
	g.bodies = newBudget(config.Limits.BodyBytes)
	g.contact = newContact(config.FenceAfter, time.Now())
	g.routes()
	return g, nil
}

// Holder is what the gateway's own leases say who has them.
func (g *Gateway) Holder() string { return api.GatewayHolderPrefix + g.config.HostID }

// Handle adds a route that is not the gateway's own, such as /metrics, before Start. It gets the same protection.
func (g *Gateway) Handle(pattern string, handler http.Handler) { g.mux.Handle(pattern, handler) }

// desk returns the desk of a pool, made where it is missing; nil once the gateway closes.
func (g *Gateway) desk(pool string) *desk {
	g.mu.RLock()
	d := g.desks[pool]
	g.mu.RUnlock()
	if d != nil {
		return d
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if d = g.desks[pool]; d == nil && !g.closing {
		d = newDesk(g, pool)
		g.desks[pool] = d
		g.work.Go(d.keep)
	}
	return d
}

// knownDesk is desk without making one.
func (g *Gateway) knownDesk(pool string) *desk {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.desks[pool]
}

var errClosing = api.Errorf(api.CodeUnavailable, "this gateway is shutting down; try another, or again in a moment").After(time.Second)

// Close refuses new calls, waits until ctx ends for those in flight, gives back the gateway's own leases, and closes the
// listeners. It fails with ctx's error if it had to cut calls.
func (g *Gateway) Close(ctx context.Context) error {
	var err error
	g.closeOnce.Do(func() {
		defer close(g.closed)
		close(g.stopping)
		g.mu.Lock()
		g.closing = true
		desks := make([]*desk, 0, len(g.desks))
		for _, d := range g.desks {
			desks = append(desks, d)
		}
		g.mu.Unlock()
		for _, d := range desks {
			d.shut()
		}
		if g.server != nil {
			err = g.server.Shutdown(ctx)
		}
		for _, d := range desks {
			err = errors.Join(err, d.quiet(ctx))
			d.returnAll(ctx)
		}
		g.end()
		if g.server != nil {
			err = errors.Join(err, g.server.Close())
		}
		g.work.Wait()
	})
	<-g.closed
	return err
}
