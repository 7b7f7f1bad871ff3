package tempool

import (
	"crypto/tls"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
)

// Options say where Temporal and the gateways are. Empty fields come from the standard environment and profile settings
// (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TLS, API key), else they are localhost:7233 and "default".
type Options struct {
	Address   string
	Namespace string
	Logger    log.Logger
	Identity  string
	// Interceptors see the client's requests to Temporal, such as OpenTelemetry's of
	// go.temporal.io/sdk/contrib/opentelemetry. Requests to gateways carry the trace of their context without it. Those
	// that also intercept workers do so in workers of Client.Temporal.
	Interceptors []interceptor.ClientInterceptor
	// Metrics receives the Temporal SDK's metrics; nil drops them.
	Metrics client.MetricsHandler
	// Gateways are endpoints (http://HOST:PORT, https://HOST:PORT or unix:PATH) for all calls and leases. Each must host
	// workers of every pool that is called, or refer to gateways that do. Dial then contacts nothing; the client connects
	// to Temporal only for other requests. Empty: the client finds the gateways in each pool's roster.
	Gateways []string
	// GatewayToken is the bearer token for gateways that require one. It is sent only over TLS and to loopback addresses.
	// Empty: that of TEMPOOL_TOKEN, or of the file TEMPOOL_TOKEN_FILE.
	GatewayToken string
	// GatewayTLS is for https gateways; nil trusts the authorities in the PEM file TEMPOOL_CA_FILE, else the system's, and
	// sends the client certificate of the PEM files TEMPOOL_CERT_FILE and TEMPOOL_KEY_FILE, if any.
	GatewayTLS *tls.Config
	// QueryTimeout bounds a query of a workflow, which an agent answers; 0: 10 s.
	QueryTimeout time.Duration
	// Payloads say how what Temporal stores is encoded.
	Payloads Payloads
}

// CheckoutOptions describe the lease that a checkout asks for.
type CheckoutOptions struct {
	Holder  string        // required
	Session string        // optional
	Key     string        // of the calls under the lease, unless they name another; see CallOptions
	TTL     time.Duration // 0: the spec's lease.ttl
	Slot    *int          // a particular worker; nil: any
	// RequestID makes the checkout idempotent for one worker; empty: a random one.
	RequestID string
	// Token is the lease's secret, of 22 bytes at least; empty: a random one. A program that repeats a RequestID repeats
	// the Token as well.
	Token string
	// Wait bounds how long Checkout waits for a free worker; 0: until its context ends.
	Wait time.Duration
	// NoRenew leaves the renewal to the caller, as for a lease that outlives this program.
	NoRenew bool
}
