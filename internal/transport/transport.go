// Package transport carries HTTP requests to gateways by their endpoints, http://HOST:PORT, https://HOST:PORT or
// unix:PATH, and turns failures into coded errors. It knows nothing of pools.
package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/loopback"
	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/internal/tracecontext"
)

const (
	// dialTimeout bounds each of the TCP and the TLS handshake with a gateway.
	dialTimeout = 3 * time.Second
	// maxIdleConnections is for each gateway.
	maxIdleConnections = 256
	idleTimeout        = time.Minute
	// continueTimeout is how long a request with "Expect: 100-continue" waits for the gateway before it sends its body.
	continueTimeout = 10 * time.Second
	// maxProblemBytes bounds what is read of an error answer.
	maxProblemBytes = 4 << 20
)

// Transport keeps the connections to gateways. It is safe for concurrent use.
type Transport struct {
	token string
	tls   *tls.Config

	mu      sync.Mutex
	clients map[clientKey]*http.Client
}

// clientKey distinguishes clients, which share no connections.
type clientKey struct {
	socket      string // "" for TCP
	certificate bool   // it shows the client certificate
}

// New returns a Transport that sends token, if it is not empty, over TLS and to loopback only. A nil config trusts the
// system's authorities.
func New(token string, config *tls.Config) *Transport {
	return &Transport{token: token, tls: config, clients: map[clientKey]*http.Client{}}
}

// Request is one HTTP request to a gateway.
type Request struct {
	Method string
	Path   string // escaped, with its query
	Header http.Header
	Body   Body
	// Timeout bounds the request and the reading of its answer; 0 leaves that to the context.
	Timeout time.Duration
	// AnyStatus makes Do return an answer of any status, not of 2xx only.
	AnyStatus bool
}

// Do sends a request, with the W3C trace context of ctx unless its headers have one, and returns its answer if the
// status is 2xx; the caller closes it. A body that has an error fails with that. A problem that the gateway answers has
// the gateway's code and Started. A failure to reach the gateway is CodeUnavailable, the end of ctx or of the timeout
// CodeDeadlineExceeded or CodeCancelled; Started is false then only if the request was not sent.
func (t *Transport) Do(ctx context.Context, endpoint string, r Request) (*Reply, error) {
	if r.Body.err != nil {
		return nil, r.Body.err
	}
	ctx, cancel := withTimeout(ctx, r.Timeout)
	response, err := t.send(ctx, endpoint, r)
	if err != nil {
		cancel()
		return nil, err
	}
	return &Reply{Response: response, ctx: ctx, cancel: cancel}, nil
}

func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout > 0 {
		return context.WithTimeout(ctx, timeout)
	}
	return context.WithCancel(ctx)
}

func (t *Transport) send(ctx context.Context, endpoint string, r Request) (*http.Response, error) {
	asked := endpoint
	endpoint, token, certificate, err := t.accessTo(ctx, asked)
	if err != nil {
		return nil, err
	}
	client, base := t.client(endpoint, certificate)
	traced, sent := TraceSent(ctx, r.Header)
	request, err := http.NewRequestWithContext(traced, r.Method, base+r.Path, r.Body.open())
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid,
			"invalid gateway endpoint %q; use http://HOST:PORT, https://HOST:PORT or unix:PATH: %w", redact.URLs(asked),
			redact.Error(err))
	}
	if r.Header != nil {
		request.Header = r.Header.Clone()
	}
	if r.Body.contentType != "" && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", r.Body.contentType)
	}
	tracecontext.ToHTTP(ctx, request.Header)
	if token != "" && private(request.URL) {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, Error(ctx, err, "request to the gateway at "+redact.URLs(asked)+" failed", sent())
	}
	if r.AnyStatus || response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(io.LimitReader(response.Body, maxProblemBytes)) // a truncated problem parses as none
	return nil, Problem(response, content)
}

// TraceSent returns ctx for a request with these headers, and whether the server may have seen that request. net/http
// tries again, on another connection, what it has not sent or may send twice. With an idempotency key, a call may have
// been sent before; what only reads has no effect then.
func TraceSent(ctx context.Context, h http.Header) (traced context.Context, sent func() bool) {
	var begun atomic.Bool
	var conn net.Conn
	repeats := h["Idempotency-Key"] != nil || h["X-Idempotency-Key"] != nil
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { begun.Store(repeats && begun.Load()) },
		GotConn: func(got httptrace.GotConnInfo) { conn = got.Conn },
		WroteHeaders: func() {
			// net/http also writes to a connection that it has closed because the server has
			if conn.SetWriteDeadline(time.Time{}) == nil {
				begun.Store(true)
			}
		},
	}), begun.Load
}

// client returns the HTTP client for an endpoint and the base of its URLs.
func (t *Transport) client(endpoint string, certificate bool) (client *http.Client, base string) {
	socket, isSocket := strings.CutPrefix(endpoint, "unix:")
	base = "http://gateway"
	if !isSocket {
		socket, base = "", strings.TrimRight(endpoint, "/")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := clientKey{socket, certificate}
	if client = t.clients[key]; client == nil {
		client = t.newClient(key)
		t.clients[key] = client
	}
	return client, base
}

func (t *Transport) newClient(key clientKey) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout}
	config := t.tls
	if config != nil && !key.certificate {
		config = config.Clone()
		config.Certificates, config.GetClientCertificate = nil, nil
	}
	transport := &http.Transport{
		TLSClientConfig: config, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: maxIdleConnections, IdleConnTimeout: idleTimeout, ExpectContinueTimeout: continueTimeout,
		DisableCompression: true,
	}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if key.socket != "" {
			network, address = "unix", key.socket
		}
		return dialer.DialContext(ctx, network, address)
	}
	return &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// private reports whether nobody else can read what is sent to a URL, so that a token may be.
func private(u *url.URL) bool { return u.Scheme == "https" || loopback.Host(u.Hostname()) }

// Close closes idle connections. Requests in flight continue.
func (t *Transport) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, client := range t.clients {
		client.CloseIdleConnections()
	}
}

// Access is how the requests of one context reach gateways, in place of the Transport's own credentials: an agent calls
// other agents on behalf of a visitor, not as itself.
type Access struct {
	// Token is sent; "" sends none.
	Token string
	// Certificate lets requests use the Transport's client certificate.
	Certificate bool
	// Own are the endpoints of the own gateway, by where it is reached instead, "" for there. An endpoint that another
	// host reports gets neither a token on loopback nor a request over a Unix socket: both would reach this machine and
	// not that host.
	Own map[string]string
}

type accessKey struct{}

// WithAccess makes the requests of a context use a.
func WithAccess(ctx context.Context, a Access) context.Context {
	return context.WithValue(ctx, accessKey{}, a)
}

// accessTo is the endpoint at which a gateway is reached from a context, the token for it, and whether to show the
// client certificate.
func (t *Transport) accessTo(ctx context.Context, asked string) (endpoint, token string, certificate bool, err error) {
	access, given := ctx.Value(accessKey{}).(Access)
	if !given {
		return asked, t.token, true, nil
	}
	if instead, own := access.Own[asked]; own {
		return cmp.Or(instead, asked), access.Token, true, nil
	}
	if strings.HasPrefix(asked, "unix:") || access.Token != "" && onLoopback(asked) {
		return "", "", false, api.Errorf(api.CodeUnavailable,
			"the gateway at %s is reachable only from its own host; give its agent an address that others reach with "+
				"--listen, and TLS", redact.URLs(asked))
	}
	return asked, access.Token, access.Certificate, nil
}

// SendsToken reports whether requests of a context carry a token.
func (t *Transport) SendsToken(ctx context.Context) bool {
	access, given := ctx.Value(accessKey{}).(Access)
	if !given {
		return t.token != ""
	}
	return access.Token != ""
}

func onLoopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && loopback.Host(u.Hostname())
}
