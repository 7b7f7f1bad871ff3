package tempool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
)

// Options say where Temporal is. Empty fields are found by the standard environment and profile settings
// (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TLS, API key), and else are localhost:7233 and "default".
type Options struct {
	Address   string
	Namespace string
	Logger    log.Logger
	Identity  string
	// Metrics gets what the Temporal SDK measures; nil drops it.
	Metrics client.MetricsHandler
	// Gateways are endpoints (http://HOST:PORT, https://HOST:PORT or unix:PATH) that calls go through, all of them hosting workers of every
	// pool that is called, or naming those that do. With them Dial contacts nobody, and calls and leases go through them alone; what else is
	// asked of the client finds Temporal then. Empty: gateways are found by each pool's roster.
	Gateways []string
	// GatewayToken is the bearer token of gateways that want one; it is sent over TLS and to loopback alone.
	GatewayToken string
	// GatewayTLS is for gateways with endpoints of https; nil trusts the system's authorities and shows no certificate.
	GatewayTLS *tls.Config
}

// Client speaks to the pools of one Temporal namespace and to their gateways. It is safe for concurrent use.
type Client struct {
	temporal  client.Client
	namespace string
	owned     bool
	updates   *updateLimiter
	transport *transport
	fixed     *balancer       // of Options.Gateways; nil without
	life      context.Context // ends with Close; every goroutine of the client lives in it
	end       context.CancelFunc
	work      sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	balancers map[string]*balancer   // by pool
	renewing  map[string]*leaseState // leases that are being renewed, by ID
}

// dialTimeout bounds the first contact with Temporal.
const dialTimeout = 10 * time.Second

// DialTemporal finds Temporal as Options says and opens a connection, which the caller closes.
func DialTemporal(ctx context.Context, o Options) (client.Client, string, error) {
	found, err := o.temporal()
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := client.DialContext(ctx, found)
	if err != nil {
		return nil, "", api.Errorf(api.CodeUnavailable, "no Temporal server answers at %s; start one (go run ./cmd/starter does) or set --address or TEMPORAL_ADDRESS: %w", found.HostPort, err)
	}
	return c, found.Namespace, nil
}

// temporal is where Temporal is, with every default filled in.
func (o Options) temporal() (client.Options, error) {
	found, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return client.Options{}, api.Errorf(api.CodeInvalid, "Temporal's environment or profile settings cannot be used: %w", err)
	}
	if o.Address != "" {
		found.HostPort = o.Address
	}
	if o.Namespace != "" {
		found.Namespace = o.Namespace
	}
	if found.HostPort == "" {
		found.HostPort = client.DefaultHostPort
	}
	if found.Namespace == "" {
		found.Namespace = client.DefaultNamespace
	}
	if o.Logger != nil {
		found.Logger = o.Logger
	}
	if o.Identity != "" {
		found.Identity = o.Identity
	}
	if o.Metrics != nil {
		found.MetricsHandler = o.Metrics
	}
	if onThisMachine(found.HostPort) {
		found.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{} // it would cost both sides CPU and save no network
	}
	return found, nil
}

func onThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Dial opens a Client. Close it when done. CodeUnavailable means that Temporal does not answer.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if len(o.Gateways) > 0 {
		found, err := o.temporal()
		if err != nil {
			return nil, err
		}
		lazy, err := client.NewLazyClient(found)
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "Temporal's settings cannot be used: %w", err)
		}
		c := newClient(lazy, found.Namespace, o)
		c.owned, c.fixed = true, newFixedBalancer(o.Gateways)
		return c, nil
	}
	temporal, namespace, err := DialTemporal(ctx, o)
	if err != nil {
		return nil, err
	}
	c := newClient(temporal, namespace, o)
	c.owned = true
	return c, nil
}

// NewClient makes a Client of a connection that the caller keeps and closes, after the Client.
func NewClient(c client.Client, namespace string) *Client { return newClient(c, namespace, Options{}) }

func newClient(temporal client.Client, namespace string, o Options) *Client {
	life, end := context.WithCancel(context.Background())
	return &Client{
		temporal: temporal, namespace: namespace, updates: newUpdateLimiter(), transport: newTransport(o.GatewayToken, o.GatewayTLS),
		life: life, end: end, balancers: map[string]*balancer{}, renewing: map[string]*leaseState{},
	}
}

// Temporal is the connection underneath, for what Client has no word for.
func (c *Client) Temporal() client.Client { return c.temporal }

// Namespace is the Temporal namespace the client works in.
func (c *Client) Namespace() string { return c.namespace }

// Close ends the renewing of leases, without giving them back, and the connections that the client opened. Calls in flight are for
// their callers to end.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.work.Wait()
	c.transport.close()
	if c.owned {
		c.temporal.Close()
	}
}

// goBackground runs work until the client closes, which waits for it; false means that it is closed.
func (c *Client) goBackground(work func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(func() { work(c.life) })
	return true
}

// fleet is the gateways for the calls of a pool.
func (c *Client) balancerFor(pool string) *balancer {
	if c.fixed != nil {
		return c.fixed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.balancers[pool]
	if f == nil {
		f = &balancer{read: c.Pool(pool).Running, begin: c.goBackground, now: time.Now}
		c.balancers[pool] = f
	}
	return f
}

// forget drops what is known of a pool that is not there.
func (c *Client) forget(pool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.balancers, pool)
}

// Pool names a pool; whether it exists is found out by the first request.
func (c *Client) Pool(name string) *Pool { return &Pool{client: c, name: name} }

// StartPool starts a pool. One of that name that is running already is CodePoolExists. It returns at once; Pool.Status tells
// how the workers fare.
func (c *Client) StartPool(ctx context.Context, start api.PoolStart) error {
	if err := start.Spec.Validate(); err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err)
	}
	missing, err := c.MissingSearchAttributes(ctx)
	if err != nil {
		return err
	}
	start.Searchable = len(missing) == 0
	options := client.StartWorkflowOptions{
		ID: api.PoolWorkflowID(start.Pool), TaskQueue: api.TaskQueue,
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            "pool " + start.Pool,
	}
	if start.Searchable {
		options.TypedSearchAttributes = temporal.NewSearchAttributes(temporal.NewSearchAttributeKeyKeyword(api.SearchAttributePool).ValueSet(start.Pool))
	}
	_, err = c.temporal.ExecuteWorkflow(ctx, options, api.WorkflowPool, start)
	var exists *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &exists) {
		return api.Errorf(api.CodePoolExists, "pool %s is running already; change it with ctl pool apply, or stop it first", start.Pool)
	}
	return c.fromTemporal(err, "start pool "+start.Pool)
}

// ListPools names the running pools.
func (c *Client) ListPools(ctx context.Context) ([]string, error) {
	var pools []string
	err := c.eachOpen(ctx, fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", api.WorkflowPool), func(id string) {
		pools = append(pools, id[len(api.PoolWorkflowID("")):])
	})
	return pools, err
}

// fromTemporal turns Temporal's errors into ours; what says what was attempted.
func (c *Client) fromTemporal(err error, what string) error {
	if err == nil {
		return nil
	}
	var app *temporal.ApplicationError
	if errors.As(err, &app) && app.Type() != "" {
		coded := &api.Error{Code: api.Code(app.Type()), Message: app.Message(), Err: err}
		var details api.RefusalDetails
		if app.HasDetails() && app.Details(&details) == nil {
			coded.RetryAfter = time.Duration(details.RetryAfterMS) * time.Millisecond
		}
		return coded
	}
	var notFound *serviceerror.NotFound
	var namespaceNotFound *serviceerror.NamespaceNotFound
	var exhausted *serviceerror.ResourceExhausted
	var noPoller *serviceerror.WorkflowNotReady
	switch {
	case errors.As(err, &namespaceNotFound):
		return api.Errorf(api.CodeUnavailable, "%s: Temporal has no namespace %q; create it, or set --namespace or TEMPORAL_NAMESPACE: %w", what, c.namespace, err)
	case errors.As(err, &notFound):
		return api.Errorf(api.CodeWorkerNotFound, "%s: nothing of that name is running: %w", what, err)
	case errors.As(err, &exhausted):
		return api.Errorf(api.CodeBusy, "%s: Temporal is asked too much at once: %w", what, err).After(retryExhausted)
	case errors.As(err, &noPoller), errors.Is(err, context.DeadlineExceeded):
		return api.Errorf(api.CodeUnavailable, "%s: no answer in time; is an agent running (worker, or go run ./cmd/starter)? %w", what, err)
	}
	var unavailable *serviceerror.Unavailable
	var deadline *serviceerror.DeadlineExceeded
	if errors.As(err, &unavailable) || errors.As(err, &deadline) {
		return api.Errorf(api.CodeUnavailable, "%s: Temporal or the agents did not answer; see whether the server and an agent run: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

const retryExhausted = 200 * time.Millisecond
