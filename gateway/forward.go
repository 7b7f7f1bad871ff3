package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/mcp"
	"github.com/tempool/tempool/gateway/peer"
	"github.com/tempool/tempool/gateway/pool"
)

const (
	// claimTimeout bounds how long a worker is kept for a forwarded call whose body does not come from the other gateway,
	// which has it.
	claimTimeout = 2 * time.Second
	// guestPatience is how long a call waits at another gateway where this host has no worker of its pool. Then it is sent
	// to another one, which may have a free worker by then.
	guestPatience = 100 * time.Millisecond
	// leaseHostTimeout bounds a request about a lease at its host, and checkoutTimeout one for a new lease, which that
	// host asks of Temporal for about as long at most.
	leaseHostTimeout = 5 * time.Second
	checkoutTimeout  = leaseHostTimeout + time.Second
	// hostsFresh is the least time between two looks at the list of hosts.
	hostsFresh = 5 * time.Second
)

// callerOf is the caller that another gateway has forwarded the request for; nil for a request of a client.
func callerOf(r *http.Request) *peer.Caller { return connectionOf(r).caller }

// forwardCall is how a queued call is served on another host; nil for a call that another host has forwarded. body is
// what was read of it, nil for nothing.
func (g *Gateway) forwardCall(w http.ResponseWriter, r *http.Request, request pool.Request,
	body []byte) func(context.Context, pool.Place) error {
	if callerOf(r) != nil {
		return nil
	}
	arrived := time.Now()
	return func(ctx context.Context, to pool.Place) error {
		caller := g.guest(r, arrived)
		caller.Gated = true
		return g.peers.Forward(w, r.WithContext(ctx),
			peer.Trip{Place: to, Caller: caller, Body: body, Deadline: request.Deadline})
	}
}

// forwardCheckout is how a client is served on another host; nil for one that another host has forwarded. Where the
// gateway there cannot be used from here, clients may be able to: the lease is asked of Temporal.
func (g *Gateway) forwardCheckout(w http.ResponseWriter, r *http.Request,
	request pool.CheckoutRequest) func(context.Context, pool.Place) error {
	if callerOf(r) != nil {
		return nil
	}
	arrived := time.Now()
	return func(ctx context.Context, to pool.Place) (err error) {
		if settled := to.Settled; settled != nil { // by its answer: it is asked for its body before a worker is found
			defer func() { settled(err == nil) }()
			to.Settled = nil
		}
		ctx, cancel := context.WithTimeout(ctx, checkoutTimeout)
		defer cancel()
		body, _ := json.Marshal(request) // its parts are strings and numbers
		caller := g.guest(r, arrived)
		caller.Gated = true // a host that does not ask for the body has not seen the request
		if request.WaitMS == 0 {
			caller.PatienceMS = 0
		}
		err = g.peers.Forward(w, r.WithContext(ctx), peer.Trip{Place: to, Caller: caller, Body: body})
		if !errors.Is(err, pool.ErrNotTaken) || g.peers.Reaches(to.Peer) {
			return err
		}
		lease, err := g.LeaseByTemporal(ctx, to.Worker, request)
		if err == nil {
			writeLease(w, lease)
		}
		return err
	}
}

// guest describes the client of a request that waits on this host since it arrived.
func (g *Gateway) guest(r *http.Request, arrived time.Time) peer.Caller {
	caller := peer.CallerOf(principalOf(r), r.PathValue("pool"))
	caller.WaitedMS = time.Since(arrived).Milliseconds()
	if !g.HasWorkers(r.PathValue("pool")) {
		caller.PatienceMS = guestPatience.Milliseconds()
	}
	return caller
}

// receive reads the body of a forwarded call, which the other gateway sends when a worker has been found for it, unless
// an earlier worker was. It fails if the other gateway has given the call up. A client of plain HTTP may begin to send
// until the deadline.
func receive(w http.ResponseWriter, r *http.Request, caller *peer.Caller, plain bool, limit int64,
	deadline time.Time) ([]byte, error) {
	if body := connectionOf(r).body; body != nil {
		return body, nil
	}
	reads := http.NewResponseController(w)
	if !plain {
		deadline = time.Now().Add(claimTimeout)
	}
	_ = reads.SetReadDeadline(deadline)
	defer func() { _ = reads.SetReadDeadline(time.Time{}) }()
	in := bufio.NewReader(r.Body)
	switch _, err := in.Peek(1); {
	case caller.Empty && errors.Is(err, io.EOF):
		r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, 0, nil
	case plain && errors.Is(err, os.ErrDeadlineExceeded):
		return nil, api.Errorf(api.CodeDeadlineExceeded, "no body came before the call's deadline: %w", err)
	case err != nil:
		return nil, api.Errorf(api.CodeCancelled, "the gateway of host %s has given the call up: %w", caller.From, err)
	default:
		r.Body = struct {
			io.Reader
			io.Closer
		}{in, r.Body}
	}
	if plain {
		return nil, nil
	}
	return readBody(w, r, limit, deadline)
}

// atItsHost has a request about a lease or a worker that another host has served there.
func (g *Gateway) atItsHost(handle func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return g.orProblem(func(w http.ResponseWriter, r *http.Request) error {
		err := handle(w, r)
		other, isOther := errors.AsType[api.OtherHostError](err)
		if !isOther || callerOf(r) != nil {
			return err
		}
		to := api.Peer{Host: other.Host, Endpoint: other.Endpoint}
		if to.Endpoint == "" && len(other.Gateways) == 1 {
			to = other.Gateways[0]
		}
		if to.Endpoint == "" {
			return err
		}
		if failure := g.forward(w, r, to); !errors.Is(failure, pool.ErrNotTaken) {
			return failure
		}
		return err // which names the host, so that a client which reaches it may go there
	})
}

// forward sends a request of a client to the host that must serve it.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, to api.Peer) error {
	name := r.PathValue("pool")
	if ref, err := api.ParseLeaseID(strings.Split(r.PathValue("id"), "~")[0]); name == "" && err == nil {
		name = ref.Pool
	}
	trip := peer.Trip{Place: pool.Place{Peer: to}, Caller: peer.CallerOf(principalOf(r), name), Body: connectionOf(r).body}
	if r.PathValue("method") != "" { // a call or a notification
		ms, _ := integer(r.Header, api.HeaderTimeout, 0, 1, MaxCallTimeout.Milliseconds())
		trip.Deadline = g.Deadline(name, time.Duration(ms)*time.Millisecond)
		return g.peers.Forward(w, r, trip)
	}
	sp, _ := g.Spec(r.Context(), name) // known by now
	// an MCP client may come back from its record, wait for a process, and have that initialized before its own call
	trip.Silence = leaseHostTimeout + sp.Queue.Timeout.D() + 2*time.Until(g.Deadline(name, 0))
	follow, _ := isSet(r.URL.Query(), "follow", false)
	if follow || lasts(r) && r.PathValue("n") == "" && !mcp.OfRequest(r.Header.Get("Last-Event-ID")) {
		ctx, cancel := context.WithCancel(r.Context()) // a followed log, and what an MCP server sends unasked, has no end
		defer cancel()
		defer context.AfterFunc(g.life, cancel)()
		r = r.WithContext(ctx)
	}
	return g.peers.Forward(w, r, trip)
}

// leaseAtItsHost has the renewal or the checkin of a lease that another host has done there. If that host does not
// answer, this one passes it to Temporal, which accepts it a second time, too.
func (g *Gateway) leaseAtItsHost(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, _ := leaseOf(r)
		var other api.OtherHostError
		if callerOf(r) == nil && errors.As(g.LeaseHost(r.Context(), id), &other) {
			body, err := readSmall(w, r, maxControlBody, "")
			if err != nil {
				writeProblem(w, err)
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), leaseHostTimeout)
			defer cancel()
			if g.forward(w, r.WithContext(ctx), api.Peer{Host: other.Host, Endpoint: other.Endpoint}) == nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		handle(w, r)
	}
}

// orProblem is the function orProblem, which also tells another gateway whether its request may go to a third host.
func (g *Gateway) orProblem(handle func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return orProblem(func(w http.ResponseWriter, r *http.Request) error {
		err := handle(w, r)
		if err != nil && callerOf(r) != nil && api.CodeOf(err).Retryable() && !problemOf(err).Started {
			peer.RefuseCall(w.Header())
		}
		return err
	})
}

// getSlots is GET /v1/pools/{pool}/slots?wait_ms=N: how many calls of the pool could start on this host now. It waits
// for the first one. With queue=true a host without workers of its own asks, which may send one call to wait here.
func (g *Gateway) getSlots(ctx context.Context, r *http.Request) (peer.Slots, error) {
	pool, query := r.PathValue("pool"), r.URL.Query()
	wait, err := integer(query, "wait_ms", 0, 0, maxSlotsWait.Milliseconds())
	if err != nil {
		return peer.Slots{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(wait)*time.Millisecond)
	defer cancel()
	defer context.AfterFunc(g.life, cancel)()
	for {
		free, changed := g.FreeSlots(pool)
		if free <= 0 && query.Get("queue") == "true" && g.HasWorkers(pool) {
			free = 1
		}
		if free > 0 || wait == 0 {
			return peer.Slots{Free: free}, nil
		}
		select {
		case <-changed:
		case <-time.After(slotsPace): // a pool that is not known here yet changes without notice
		case <-ctx.Done():
			return peer.Slots{}, nil
		}
	}
}

// slotsPace is how often getSlots looks for free slots that nothing announces.
const slotsPace = 50 * time.Millisecond

// maxSlotsWait bounds wait_ms of getSlots.
const maxSlotsWait = 10 * time.Second

// fromPeer returns the caller of a request that another gateway forwards, and the client with the rights that it may
// have here. The other gateway proves itself by the peer token or by its host's certificate. Where programs of this
// machine need no proof to be clients, its gateways need none either, and have no more rights and nobody else's name.
func (a *authenticator) fromPeer(c *connection, r *http.Request) (*access.Principal, *peer.Caller, error) {
	caller, secret, err := peer.ReadCaller(r.Header)
	if err != nil {
		return nil, nil, err
	}
	bound := access.Rights(0)
	switch {
	case a.secret != nil && a.secret.Matches(secret), a.mutual && c.peer == nil && a.hosts.has(c, r):
		bound = access.All
	case c.peer == nil && a.loopback && a.tokens == nil && !a.mutual && a.secret == nil:
		bound = access.Client
		if caller.Name != c.host { // every program here may say so: it has nothing of the socket's client of that name
			caller.Name = "unproven-" + caller.Name
		}
	default:
		return nil, nil, peer.ErrNotAPeer
	}
	if caller.To != a.hostID {
		return nil, nil, api.Errorf(api.CodeForbidden, "this is host %s, not %s", a.hostID, caller.To)
	}
	return caller.Principal(bound), caller, nil
}

// hostNames are the names in the addresses of all hosts' gateways.
type hostNames struct {
	list func(context.Context) ([]string, error) // the endpoints

	reading sync.Mutex // held while list is asked
	at      time.Time

	mu    sync.Mutex
	names map[string]bool
}

// has reports whether the client's certificate, which an authority of --client-ca has signed, is that of a host.
func (h *hostNames) has(c *connection, r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	if !c.isHost {
		certificate := r.TLS.PeerCertificates[0]
		if c.isHost = h.named(certificate); !c.isHost {
			h.read(r.Context())
			c.isHost = h.named(certificate)
		}
	}
	return c.isHost
}

func (h *hostNames) named(certificate *x509.Certificate) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range h.names {
		if certificate.VerifyHostname(name) == nil {
			return true
		}
	}
	return false
}

// read reads the list of hosts again, unless that was done just now. Another one waits until it is done.
func (h *hostNames) read(ctx context.Context) {
	h.reading.Lock()
	defer h.reading.Unlock()
	if time.Since(h.at) < hostsFresh {
		return
	}
	h.at = time.Now()
	ctx, cancel := context.WithTimeout(ctx, hostsFresh)
	defer cancel()
	endpoints, err := h.list(ctx)
	if err != nil {
		return
	}
	names := make(map[string]bool, len(endpoints))
	for _, endpoint := range endpoints {
		if u, err := url.Parse(endpoint); err == nil && u.Hostname() != "" {
			names[u.Hostname()] = true
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names = names
}
