package tempool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
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
}

// Client speaks to the pools of one Temporal namespace. It is safe for concurrent use.
type Client struct {
	temporal  client.Client
	namespace string
	owned     bool
	gate      *gate
}

// dialTimeout bounds the first contact with Temporal.
const dialTimeout = 10 * time.Second

// DialTemporal finds Temporal as Options says and opens a connection, which the caller closes.
func DialTemporal(ctx context.Context, o Options) (client.Client, string, error) {
	found, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return nil, "", Errorf(CodeInvalid, "Temporal's environment or profile settings cannot be used: %w", err)
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
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := client.DialContext(ctx, found)
	if err != nil {
		return nil, "", Errorf(CodeUnavailable, "no Temporal server answers at %s; start one (go run ./cmd/starter does) or set --address or TEMPORAL_ADDRESS: %w", found.HostPort, err)
	}
	return c, found.Namespace, nil
}

// Dial opens a Client. Close it when done.
func Dial(ctx context.Context, o Options) (*Client, error) {
	c, namespace, err := DialTemporal(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Client{temporal: c, namespace: namespace, owned: true, gate: newGate()}, nil
}

// NewClient makes a Client of a connection that the caller keeps and closes.
func NewClient(c client.Client, namespace string) *Client {
	return &Client{temporal: c, namespace: namespace, gate: newGate()}
}

// Temporal is the connection underneath, for what Client has no word for.
func (c *Client) Temporal() client.Client { return c.temporal }

// Namespace is the Temporal namespace the client works in.
func (c *Client) Namespace() string { return c.namespace }

// Close ends the connection that Dial opened.
func (c *Client) Close() {
	if c.owned {
		c.temporal.Close()
	}
}

// Pool names a pool; whether it exists is found out by the first request.
func (c *Client) Pool(name string) *Pool { return &Pool{client: c, name: name} }

// StartPool starts a pool. One of that name that is running already is CodePoolExists. It returns at once; Pool.Status tells
// how the workers fare.
func (c *Client) StartPool(ctx context.Context, start PoolStart) error {
	if err := start.Spec.Validate(); err != nil {
		return Errorf(CodeInvalid, "%w", err)
	}
	missing, err := c.MissingSearchAttributes(ctx)
	if err != nil {
		return err
	}
	start.Searchable = len(missing) == 0
	options := client.StartWorkflowOptions{
		ID: PoolWorkflowID(start.Pool), TaskQueue: TaskQueue,
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            "pool " + start.Pool,
	}
	if start.Searchable {
		options.TypedSearchAttributes = temporal.NewSearchAttributes(temporal.NewSearchAttributeKeyKeyword(SearchAttributePool).ValueSet(start.Pool))
	}
	_, err = c.temporal.ExecuteWorkflow(ctx, options, WorkflowPool, start)
	var exists *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &exists) {
		return Errorf(CodePoolExists, "pool %s is running already; change it with ctl pool apply, or stop it first", start.Pool)
	}
	return c.understand(err, "start pool "+start.Pool)
}

// ListPools names the running pools.
func (c *Client) ListPools(ctx context.Context) ([]string, error) {
	var pools []string
	err := c.eachOpen(ctx, fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", WorkflowPool), func(id string) {
		pools = append(pools, id[len(PoolWorkflowID("")):])
	})
	return pools, err
}

// understand turns Temporal's errors into ours; what says what was attempted.
func (c *Client) understand(err error, what string) error {
	if err == nil {
		return nil
	}
	var app *temporal.ApplicationError
	if errors.As(err, &app) && app.Type() != "" {
		coded := &Error{Code: Code(app.Type()), Message: app.Message(), Err: err}
		var details RefusalDetails
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
		return Errorf(CodeUnavailable, "%s: Temporal has no namespace %q; create it, or set --namespace or TEMPORAL_NAMESPACE: %w", what, c.namespace, err)
	case errors.As(err, &notFound):
		return Errorf(CodeWorkerNotFound, "%s: nothing of that name is running: %w", what, err)
	case errors.As(err, &exhausted):
		return Errorf(CodeBusy, "%s: Temporal is asked too much at once: %w", what, err).After(retryExhausted)
	case errors.As(err, &noPoller), errors.Is(err, context.DeadlineExceeded):
		return Errorf(CodeUnavailable, "%s: no answer in time; is an agent running (worker, or go run ./cmd/starter)? %w", what, err)
	}
	var unavailable *serviceerror.Unavailable
	var deadline *serviceerror.DeadlineExceeded
	if errors.As(err, &unavailable) || errors.As(err, &deadline) {
		return Errorf(CodeUnavailable, "%s: Temporal or the agents did not answer; see whether the server and an agent run: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

const retryExhausted = 200 * time.Millisecond
