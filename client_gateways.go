package tempool

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
)

const (
	// dialGateway bounds the making of one connection to a gateway.
	dialGateway = 3 * time.Second
	// idleConnections are kept to one gateway for the calls to come.
	idleConnections = 256
	idleTime        = time.Minute
	// maxProblem bounds what is read of an answer that is an error, in bytes.
	maxProblem = 4 << 20
)

// transport carries requests to gateways by their endpoints (http://HOST:PORT, https://HOST:PORT or unix:PATH) and keeps the
// connections. It knows nothing of pools. It is safe for concurrent use.
type transport struct {
	token string
	tls   *tls.Config

	mu      sync.Mutex
	clients map[string]*http.Client // by Unix socket; "" is the one for TCP
}

func newTransport(token string, config *tls.Config) *transport {
	return &transport{token: token, tls: config, clients: map[string]*http.Client{}}
}

// client is the HTTP client for an endpoint, and the base of its URLs.
func (g *transport) client(endpoint string) (client *http.Client, base string) {
	socket, isSocket := strings.CutPrefix(endpoint, "unix:")
	base = "http://gateway"
	if !isSocket {
		socket, base = "", strings.TrimRight(endpoint, "/")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if client = g.clients[socket]; client == nil {
		dialer := &net.Dialer{Timeout: dialGateway}
		transport := &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: g.tls, TLSHandshakeTimeout: dialGateway,
			MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTime, DisableCompression: true,
		}
		if isSocket {
			transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			}
		}
		client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		g.clients[socket] = client
	}
	return client, base
}

// do makes one request and returns its answer if that is no error; the caller closes its body. A failure that the gateway tells
// has the gateway's code and Started. One of the way there is CodeUnavailable, one of ctx CodeDeadlineExceeded or CodeCancelled;
// then Started is false only if nothing of the request was written.
func (g *transport) do(ctx context.Context, endpoint, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	client, base := g.client(endpoint)
	var written atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { written.Store(false) }, // a second time only where nothing has left this machine
		WroteHeaders: func() { written.Store(true) },
	})
	request, err := http.NewRequestWithContext(traced, method, base+path, body)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%q is no endpoint of a gateway; one looks like http://127.0.0.1:7460 or unix:/run/gateway.sock: %w", endpoint, err)
	}
	if header != nil {
		request.Header = header
	}
	if g.token != "" && private(request.URL) {
		request.Header.Set("Authorization", "Bearer "+g.token)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, transportError(ctx, err, "the gateway at "+endpoint+" could not be asked", written.Load())
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	// What can be read of it says what there is to say; a problem that is cut short has no code.
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxProblem))
	return nil, problemOf(response, text)
}

// private reports whether strangers cannot read what is sent to a URL, so that a token may be.
func private(u *url.URL) bool {
	if u.Scheme == "https" || u.Hostname() == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return err == nil && addr.IsLoopback()
}

func (g *transport) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, client := range g.clients {
		client.CloseIdleConnections()
	}
}

// transportError is the failure of a request that no gateway answered.
func transportError(ctx context.Context, err error, what string, started bool) *api.Error {
	var inURL *url.Error
	if errors.As(err, &inURL) { // its sentence repeats the URL
		err = inURL.Err
	}
	code := api.CodeUnavailable
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		code, err = api.CodeDeadlineExceeded, ctx.Err()
		what = "no answer came within the call's time"
	case ctx.Err() != nil:
		code, err = api.CodeCancelled, ctx.Err()
		what = "the call was cancelled by its caller"
	}
	failure := api.Errorf(code, "%s: %w", what, err)
	failure.Started = started
	return failure
}
