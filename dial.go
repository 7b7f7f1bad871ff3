package tempool

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/converter"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/balance"
	"github.com/tempool/tempool/internal/loopback"
	"github.com/tempool/tempool/internal/transport"
	"github.com/tempool/tempool/internal/updatelimit"
)

// dialTimeout bounds the first contact with Temporal.
const dialTimeout = 10 * time.Second

// Dial opens a Client; the caller closes it. CodeUnavailable means that Temporal does not answer within 10 s,
// CodeInvalid that the settings are wrong.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if err := o.gatewayEnvironment(); err != nil {
		return nil, err
	}
	options, err := o.temporal()
	if err != nil {
		return nil, err
	}
	o.Payloads.Converter = options.DataConverter
	if len(o.Gateways) > 0 {
		lazy, err := client.NewLazyClient(options)
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "invalid Temporal settings: %w", err)
		}
		c := newClient(lazy, options.Namespace, o)
		c.owned, c.fixed, c.gateways = true, balance.NewFixed(o.Gateways), o.Gateways
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	temporal, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable,
			"no Temporal server answers at %s; start one (tempool dev) or set --address or TEMPORAL_ADDRESS: %w",
			options.HostPort, dialError(ctx, options.HostPort, err))
	}
	c := newClient(temporal, options.Namespace, o)
	c.owned = true
	return c, nil
}

// dialError adds to err why no server could be reached, if gRPC's error does not say.
func dialError(ctx context.Context, address string, err error) error {
	if strings.Contains(address, "://") { // an address of gRPC's own form
		return err
	}
	host, _, invalid := net.SplitHostPort(address)
	if invalid != nil {
		return fmt.Errorf("write the address as HOST:PORT, such as localhost:7233: %w", err)
	}
	if _, unknown := net.DefaultResolver.LookupHost(ctx, host); unknown != nil {
		return fmt.Errorf("%w: %w", unknown, err)
	}
	return err
}

// NewClient returns a Client on an existing connection, whose payloads have the SDK's default encoding. The caller
// closes the connection, after the Client.
func NewClient(c client.Client, namespace string) *Client { return newClient(c, namespace, Options{}) }

func newClient(temporal client.Client, namespace string, o Options) *Client {
	o.Payloads.Converter = cmp.Or(o.Payloads.Converter, converter.GetDefaultDataConverter())
	ctx, cancel := context.WithCancel(context.Background())
	return &Client{
		temporal: temporal, namespace: namespace, converter: o.Payloads.Converter, updates: updatelimit.New(),
		transport: transport.New(o.GatewayToken, o.GatewayTLS), queryTimeout: o.QueryTimeout,
		ctx: ctx, cancel: cancel, balancers: map[string]*balance.Balancer{}, noGateway: map[string]time.Time{},
	}
}

// temporal returns the Temporal SDK's options, with every default filled in.
func (o Options) temporal() (client.Options, error) {
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return client.Options{}, api.Errorf(api.CodeInvalid, "invalid Temporal environment or profile settings: %w", err)
	}
	options.HostPort = cmp.Or(o.Address, options.HostPort, client.DefaultHostPort)
	options.Namespace = cmp.Or(o.Namespace, options.Namespace, client.DefaultNamespace)
	options.Identity = cmp.Or(o.Identity, options.Identity)
	options.Logger = cmp.Or(o.Logger, options.Logger)
	options.MetricsHandler = cmp.Or(o.Metrics, options.MetricsHandler)
	options.Interceptors = append(options.Interceptors, o.Interceptors...)
	if o.Payloads, err = o.Payloads.WithDefaults(); err != nil {
		return client.Options{}, err
	}
	if err := o.Payloads.apply(&options); err != nil {
		return client.Options{}, err
	}
	if loopback.Address(options.HostPort) {
		options.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{} // it costs CPU and saves no network here
	}
	return options, nil
}
