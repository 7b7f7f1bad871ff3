package tempool

import (
	"context"
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
		o.Payloads.Converter = options.DataConverter
		c := newClient(lazy, options.Namespace, o)
		c.owned, c.fixed, c.gateways = true, balance.NewFixed(o.Gateways), o.Gateways
		return c, nil
	}
	options, err := o.temporal()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	temporal, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "no Temporal server answers at %s; start one (go run ./cmd/starter) or set --address or TEMPORAL_ADDRESS: %w", options.HostPort, err)
	}
	o.Payloads.Converter = options.DataConverter
	c := newClient(temporal, options.Namespace, o)
	c.owned = true
	return c, nil
}

// NewClient returns a Client on an existing connection, whose payloads have the SDK's default encoding. The caller closes the connection, after
// the Client.
func NewClient(c client.Client, namespace string) *Client { return newClient(c, namespace, Options{}) }

func newClient(temporal client.Client, namespace string, o Options) *Client {
	if o.Payloads.Converter == nil {
		o.Payloads.Converter = converter.GetDefaultDataConverter()
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Client{
		temporal: temporal, namespace: namespace, converter: o.Payloads.Converter, updates: updatelimit.New(), transport: transport.New(o.GatewayToken, o.GatewayTLS),
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
	options.Interceptors = append(options.Interceptors, o.Interceptors...)
	if o.Metrics != nil {
		options.MetricsHandler = o.Metrics
	}
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
