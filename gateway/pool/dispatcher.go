// Package pool chooses a worker of this host for each call, sends the call, and holds clients to their leases.
//
// A host uses its own workers: calls of a pool (CallPool) run on any of them that is open. A client's lease closes one
// to all other calls, and the Dispatcher rejects any lease that is not the newest of its worker (Call). Requests go
// straight to the worker's process, never through Temporal.
package pool

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/sessions/affinity"
)

// Defaults of Config.
const (
	DefaultFenceAfter = 5 * time.Minute
	DefaultCheckEvery = 5 * time.Second
)

// defaultCallTimeout bounds a call of a pool whose spec is not known yet.
const defaultCallTimeout = 10 * time.Minute

// Config configures a Dispatcher. HostID, Control, Processes, Affinity and, for workers of protocol none, Plain are
// required.
type Config struct {
	HostID    string
	Control   lease.Control
	Processes *process.Supervisor
	// Plain returns the upstream of a process of protocol none.
	Plain func(*process.Process) PlainUpstream
	// Receive gets what the MCP servers of pools send that answers no call, as wire.Receive says. nil gets nothing.
	Receive func(pool, worker string, incarnation int64, m wire.Incoming) bool
	// Connect gets the connection to each process of an MCP server that is for nobody in particular, and its era. nil gets
	// none.
	Connect func(pool string, conn *wire.Conn, era string)
	// Affinity remembers which worker served a session.
	Affinity *affinity.Table
	// Score returns the health of a worker, from 0 to 100. nil scores all workers alike.
	Score func(worker string, incarnation int64) float64
	// Unhealthy reports that calls have failed too often in a row (health.max_call_errors); replace says that they have
	// again after an earlier report, or that the program asked to be replaced. nil reports nothing.
	Unhealthy func(worker string, incarnation int64, reason string, replace bool)
	// Peers has other hosts serve calls and clients that wait here. nil keeps all here.
	Peers Peers
	// FenceAfter is how long calls of pools run while Temporal does not answer. Default: DefaultFenceAfter.
	FenceAfter time.Duration
	// CheckEvery is the interval of health checks of Temporal. Default: DefaultCheckEvery.
	CheckEvery time.Duration
	// Tracer makes spans of calls and leases. nil makes none.
	Tracer trace.Tracer
	// Events takes what happened. nil takes nothing.
	Events *events.Log
	// Logger's default is slog.Default().
	Logger *slog.Logger
}

// PlainUpstream sends calls to one worker of protocol none.
type PlainUpstream interface {
	// Send sends the request of c and returns the worker's answer. Errors are coded with Call.Fail.
	Send(c *Call, r Request) (*Response, error)
	// Close releases idle connections when the process has ended.
	Close()
}

// Dispatcher carries calls to the processes of one host. All methods are safe for concurrent use.
type Dispatcher struct {
	config   Config
	verifier *lease.Verifier
	monitor  *controlPlaneMonitor
	clock    lease.Clock
	life     context.Context // ends with Close; bounds every goroutine of the Dispatcher
	end      context.CancelFunc
	work     sync.WaitGroup

	closing atomic.Bool  // no call starts any more
	mu      sync.RWMutex // may be locked under the lock of a pool
	pools   map[string]*poolState

	// evictAfter is how long the state of a pool without workers and callers is kept: as long as its last calls are
	// reported. Tests shorten it.
	evictAfter time.Duration
}

// New returns a Dispatcher.
func New(config Config) *Dispatcher {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	config.FenceAfter = cmp.Or(max(config.FenceAfter, 0), DefaultFenceAfter)
	config.CheckEvery = cmp.Or(max(config.CheckEvery, 0), DefaultCheckEvery)
	d := &Dispatcher{
		config: config, pools: make(map[string]*poolState), evictAfter: workerStatsExpiry,
		verifier: lease.NewVerifier(config.Control),
		monitor:  &controlPlaneMonitor{fenceAfter: config.FenceAfter, began: time.Now()},
	}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// Start begins to monitor Temporal.
func (d *Dispatcher) Start() { d.work.Go(func() { d.monitorControlPlane(d.life) }) }

// poolState returns the state of a pool and creates it if it is missing. It returns nil once the Dispatcher is closing.
func (d *Dispatcher) poolState(pool string) *poolState {
	if p := d.knownPool(pool); p != nil {
		return p
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pools[pool]
	if p == nil && !d.closing.Load() {
		p = newPoolState(d, pool)
		d.pools[pool] = p
		d.work.Go(p.run)
	}
	return p
}

// knownPool returns the state of a pool, or nil if there is none.
func (d *Dispatcher) knownPool(pool string) *poolState {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.pools[pool]
}

// lockPool is poolState with the lock of the state held. The state is not evicted.
func (d *Dispatcher) lockPool(pool string) *poolState {
	if p := d.poolState(pool); p != nil {
		return p.lock()
	}
	return nil
}

// lock locks the state, or its successor if it was evicted, and returns what it has locked: nil if the Dispatcher is
// closing.
func (p *poolState) lock() *poolState {
	p.mu.Lock()
	if !p.evicted {
		return p
	}
	p.mu.Unlock()
	return p.dispatcher.lockPool(p.pool)
}

func (d *Dispatcher) allPools() []*poolState {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Values(d.pools))
}

// ErrClosing is the answer to each call from Shut on. No such call was started.
var ErrClosing = api.Errorf(api.CodeUnavailable,
	"the gateway is shutting down; retry on another gateway").After(time.Second)

// Shut rejects new and queued calls from now on. It must be called before Close.
func (d *Dispatcher) Shut() {
	d.closing.Store(true)
	for _, p := range d.allPools() {
		p.shut()
	}
}

// Leave waits until ctx ends for the calls in flight, and cancels the others. It fails with ctx's error if it cancelled
// calls. What is known of the processes stays known until Close.
func (d *Dispatcher) Leave(ctx context.Context) error {
	var err error
	for _, p := range d.allPools() {
		err = errors.Join(err, p.awaitIdle(ctx))
	}
	return err
}

// Close does what Leave does, unless that was done, and ends the Dispatcher's goroutines.
func (d *Dispatcher) Close(ctx context.Context) error {
	err := d.Leave(ctx)
	d.end()
	for _, p := range d.allPools() {
		p.removeAll()
	}
	d.work.Wait()
	return err
}
