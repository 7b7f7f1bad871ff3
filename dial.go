package tempool

import (
	"context"
	"crypto/tls"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/balance"
	"github.com/tempool/tempool/internal/loopback"
	"github.com/tempool/tempool/internal/transport"
	"github.com/tempool/tempool/internal/updatelimit"
)

// Options say where Temporal and the gateways are. Empty fields come from the standard environment and profile settings
// (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TLS, API key), else they are localhost:7233 and "default".
type Options struct {
	Address   string
	Namespace string
	Logger    log.Logger
	Identity  string
	// Metrics receives the Temporal SDK's metrics; nil drops them.
	Metrics client.MetricsHandler
	// Gateways are endpoints (http://HOST:PORT, https://HOST:PORT or unix:PATH) for all calls and leases. Each must host workers of every
	// pool that is called, or refer to gateways that do. Dial then contacts nothing; the client connects to Temporal only for other requests.
	// Empty: the client finds the gateways in each pool's roster.
	Gateways []string
	// GatewayToken is the bearer token for gateways that require one. It is sent only over TLS and to loopback addresses. Empty: that of
	// TEMPOOL_TOKEN, or of the file TEMPOOL_TOKEN_FILE.
	GatewayToken string
	// GatewayTLS is for https gateways; nil trusts the authorities in the PEM file TEMPOOL_CA_FILE, else the system's, and sends the client
	// certificate of the PEM files TEMPOOL_CERT_FILE and TEMPOOL_KEY_FILE, if any.
	GatewayTLS *tls.Config
}

// dialTimeout bounds the first contact with Temporal.
const dialTimeout = 10 * time.Second

// Dial opens a Client; the caller closes it. CodeUnavailable means that Temporal does not answer within 10 s, CodeInvalid that the settings
// are wrong.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if err := o.gatewayEnvironment(); err != nil {
		return nil, err
	}
	if len(o.Gateways) > 0 {
		options, err := o.temporal()
		if err != nil {
			return nil, err
		}
		lazy, err := client.NewLazyClient(options)
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "invalid Temporal settings: %w", err)
		}
		c := newClient(lazy, options.Namespace, o)
		c.owned, c.fixed, c.gateways = true, balance.NewFixed(o.Gateways), o.Gateways
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

// DialTemporal connects to Temporal as Dial does and returns the connection and its namespace. The caller closes the connection.
func DialTemporal(ctx context.Context, o Options) (client.Client, string, error) {
	options, err := o.temporal()
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, "", api.Errorf(api.CodeUnavailable, "no Temporal server answers at %s; start one (go run ./cmd/starter) or set --address or TEMPORAL_ADDRESS: %w", options.HostPort, err)
	}
	return c, options.Namespace, nil
}

// NewClient returns a Client on an existing connection. The caller closes the connection, after the Client.
func NewClient(c client.Client, namespace string) *Client { return newClient(c, namespace, Options{}) }

func newClient(temporal client.Client, namespace string, o Options) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	return &Client{
		temporal: temporal, namespace: namespace, updates: updatelimit.New(), transport: transport.New(o.GatewayToken, o.GatewayTLS),
		ctx: ctx, cancel: cancel, balancers: map[string]*balance.Balancer{}, lines: map[string]*line{}, renewals: map[string]func(){},
	}
}

// temporal returns the Temporal SDK's options, with every default filled in.
func (o Options) temporal() (client.Options, error) {
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return client.Options{}, api.Errorf(api.CodeInvalid, "invalid Temporal environment or profile settings: %w", err)
	}
	if o.Address != "" {
		options.HostPort = o.Address
	}
	if o.Namespace != "" {
		options.Namespace = o.Namespace
	}
	if options.HostPort == "" {
		options.HostPort = client.DefaultHostPort
	}
	if options.Namespace == "" {
		options.Namespace = client.DefaultNamespace
	}
	if o.Logger != nil {
		options.Logger = o.Logger
	}
	if o.Identity != "" {
		options.Identity = o.Identity
	}
	if o.Metrics != nil {
		options.MetricsHandler = o.Metrics
	}
	if loopback.Address(options.HostPort) {
		options.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{} // it costs CPU and saves no network here
	}
	return options, nil
}
