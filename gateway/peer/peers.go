package peer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/balance"
	"github.com/tempool/tempool/internal/loopback"
	"github.com/tempool/tempool/internal/transport"
)

const (
	// connectTimeout bounds the TCP and the TLS handshake with a peer together, and the wait for its word about a call, in
	// addition to the longest patience of a call there.
	connectTimeout = time.Second
	// maxIdleConnections is for each peer; maxKnown bounds the peers whose failures are remembered.
	maxIdleConnections = 256
	maxKnown           = 1024
	// maxProblem bounds what is read of a refusal.
	maxProblem = 64 << 10
)

// Config configures Peers. All fields but Secret and TLS are required.
type Config struct {
	HostID string
	Queue  *pool.Dispatcher // has the calls and clients that wait on this host
	// Status reads the roster of a pool.
	Status func(ctx context.Context, pool string) (api.PoolStatus, error)
	// Endpoint is that of the own gateway.
	Endpoint func() string
	Secret   *Secret
	// TLS is how the gateway proves who it is and whom it believes; nil for the system's authorities and no certificate.
	TLS    func() *tls.Config
	Logger *slog.Logger
}

// Peers are the gateways of other hosts. It is safe for concurrent use.
type Peers struct {
	config    Config
	transport *http.Transport
	life      context.Context // of the goroutines; Close ends it
	end       context.CancelFunc
	work      sync.WaitGroup

	mu      sync.Mutex
	backoff map[string]backoff // by endpoint; only of those that have failed
	seekers map[string]*seeker // by pool
}

// backoff is that of a peer.
type backoff struct {
	balance.Backoff
	refuses bool // the peer, which is there, has refused what came from here
}

// Open completes zero Peers, before any other use. Close ends them.
func (p *Peers) Open(config Config) {
	p.config, p.backoff, p.seekers = config, make(map[string]backoff), make(map[string]*seeker)
	p.life, p.end = context.WithCancel(context.Background())
	keepAlive := net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAliveConfig: keepAlive}
	p.transport = &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: maxIdleConnections,
		IdleConnTimeout: time.Minute, DisableCompression: true,
		ExpectContinueTimeout: maxPatience + connectTimeout}
	p.transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		secure := tls.Dialer{NetDialer: dialer, Config: &tls.Config{MinVersion: tls.VersionTLS12}}
		if config.TLS != nil {
			secure.Config = config.TLS()
		}
		return secure.DialContext(ctx, network, address)
	}
}

// Close ends the search for free workers. Requests that are being forwarded go on.
func (p *Peers) Close() {
	p.mu.Lock() // under which goroutines start
	p.end()
	p.mu.Unlock()
	p.work.Wait()
	p.transport.CloseIdleConnections()
}

// reach returns the base URL of a peer, and an error if it cannot be reached from here or is in its backoff.
func (p *Peers) reach(to api.Peer) (*url.URL, error) {
	base, err := url.Parse(to.Endpoint)
	own, _ := url.Parse(p.config.Endpoint())
	switch {
	case err != nil || base.Scheme != "http" && base.Scheme != "https" || to.Endpoint == p.config.Endpoint(),
		loopback.Host(base.Hostname()) && own.Hostname() != "" && !loopback.Host(own.Hostname()):
		return nil, api.Errorf(api.CodeUnavailable,
			"the gateway of host %s has no address that other hosts reach; give its agent one with --listen", to.Host)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.backoff[to.Endpoint].Left(time.Now()) > 0 {
		return nil, api.Errorf(api.CodeUnavailable, "the gateway of host %s does not answer", to.Host).After(time.Second)
	}
	return base, nil
}

// Reaches reports whether a peer may be reached from here, and is not in its backoff.
func (p *Peers) Reaches(to api.Peer) bool {
	_, err := p.reach(to)
	return err == nil
}

// secretFor is the peer token, if nobody else can read what is sent to base.
func (p *Peers) secretFor(base *url.URL) string {
	if base.Scheme == "https" || loopback.Host(base.Hostname()) {
		return p.config.Secret.present()
	}
	return ""
}

// Refuses reports whether a peer is in its backoff because it has refused what came from here: it is there.
func (p *Peers) Refuses(to api.Peer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backoff[to.Endpoint].refuses
}

// answered records that a peer has answered.
func (p *Peers) answered(to api.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.backoff[to.Endpoint].Left(time.Now()) == 0 {
		delete(p.backoff, to.Endpoint)
	}
}

// failed begins or extends the backoff of a peer.
func (p *Peers) failed(to api.Peer, err error) {
	p.mu.Lock()
	b, now := p.backoff[to.Endpoint], time.Now()
	_, refusal := errors.AsType[refused](err)
	b.refuses = refusal || b.refuses && b.Left(now) > 0
	first := b.Left(now) == 0 && b.Fail(now) // what was under way together counts once
	if _, known := p.backoff[to.Endpoint]; !known && len(p.backoff) >= maxKnown {
		clear(p.backoff)
	}
	p.backoff[to.Endpoint] = b
	p.mu.Unlock()
	if first {
		p.config.Logger.Warn("the gateway of another host cannot be used", "peer", to.Host, "endpoint", to.Endpoint,
			"error", err)
	}
}

// slots asks a peer how many calls of a pool could start there. It waits some time for the first one. A host without a
// worker of its own has its calls wait in the peer's queue.
func (p *Peers) slots(ctx context.Context, to api.Peer, pool string, wait time.Duration, queue bool) (int, error) {
	base, err := p.reach(to)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait+connectTimeout)
	defer cancel()
	query := url.Values{"wait_ms": {fmt.Sprint(wait.Milliseconds())}, "queue": {fmt.Sprint(queue)}}
	base.Path, base.RawQuery = "/v1/pools/"+pool+"/slots", query.Encode()
	request := (&http.Request{Method: http.MethodGet, URL: base, Header: make(http.Header)}).WithContext(ctx)
	Caller{From: p.config.HostID, To: to.Host, Name: "host " + p.config.HostID, Rights: access.Call}.write(request.Header,
		p.secretFor(base))
	response, err := p.transport.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer Slots
	body, err := io.ReadAll(io.LimitReader(response.Body, maxProblem))
	switch {
	case err != nil:
		return 0, err
	case response.StatusCode != http.StatusOK:
		return 0, refused{transport.Problem(response, body), true}
	}
	if err = json.Unmarshal(body, &answer); err == nil {
		p.answered(to)
	}
	return answer.Free, err
}

// Slots is the answer to how many calls of a pool could start on a host.
type Slots struct {
	Free int `json:"free"`
}
