// Package tempool is the client of Tempool, pools of warm processes that Temporal keeps alive.
//
// Dial finds Temporal and returns a Client. Client.Pool names a pool: Pool.Call calls a method on any of its workers,
// Pool.Checkout takes a lease to call one worker several times, and Pool.Session reads and writes a session. Errors are
// *Error with a Code.
package tempool

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/balance"
	"github.com/tempool/tempool/internal/transport"
	"github.com/tempool/tempool/internal/updatelimit"
)

// Client talks to the pools of one Temporal namespace and to their gateways. It is safe for concurrent use.
type Client struct {
	temporal     client.Client
	namespace    string
	converter    converter.DataConverter
	owned        bool // Close closes temporal
	updates      *updatelimit.Limiter
	transport    *transport.Transport
	fixed        *balance.Balancer // of Options.Gateways; nil without
	gateways     []string          // Options.Gateways
	queryTimeout time.Duration     // Options.QueryTimeout
	idleTimeout  time.Duration     // of streams; 0: streamIdleTimeout
	beats        beats

	ctx        context.Context // ends with Close; every goroutine of the client stops with it
	cancel     context.CancelFunc
	background sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	balancers map[string]*balance.Balancer // by pool
	noGateway map[string]time.Time         // until when checkouts ask none, by pool
}

// Temporal returns the connection to Temporal, for what Client does not offer.
func (c *Client) Temporal() client.Client { return c.temporal }

// Namespace returns the Temporal namespace of the client.
func (c *Client) Namespace() string { return c.namespace }

// DataConverter converts what the client's namespace stores.
func (c *Client) DataConverter() converter.DataConverter { return c.converter }

// Close stops all renewals of leases, without returning the leases, and closes the connections that the client opened.
// It does not end calls in flight.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.background.Wait()
	c.transport.Close()
	if c.owned {
		c.temporal.Close()
	}
}

var errClosed = api.Errorf(api.CodeUnavailable, "the client is closed")

// goBackground runs work in a goroutine that Close waits for; its context ends with Close. A closed client returns
// errClosed.
func (c *Client) goBackground(work func(context.Context)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.background.Go(func() { work(c.ctx) })
	return nil
}
