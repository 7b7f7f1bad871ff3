package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/mcp"
	"github.com/tempool/tempool/gateway/peer"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/sessions"
)

func (g *Gateway) mcpRoutes() (routes []route) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		routes = append(routes, route{method, "/mcp/{pool}", access.Call, poolInPath,
			g.whileAllowed(orProblem(g.serveMCP))})
	}
	return routes
}

// admitPage refuses web pages of other origins than the gateway's and these, for any method: a page must not read a
// stream, either. Those pages may read the answer.
func admitPage(w http.ResponseWriter, r *http.Request, origins []string) error {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	w.Header().Add("Vary", "Origin")
	if slices.Contains(origins, origin) {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Retry-After")
	} else if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
		return api.Errorf(api.CodeForbidden, "origin %q is neither the gateway's nor one of mcp.origins", origin)
	}
	return nil
}

// answerPreflight tells a browser, which sends no token with this question, that a page may send any request to an MCP
// client's path, but as another gateway. The request itself is admitted by admitPage.
func answerPreflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	asked := r.Header.Get("Access-Control-Request-Headers")
	if lower := strings.ToLower(asked); !strings.Contains(lower, strings.ToLower(api.HeaderForwarded)) &&
		!strings.Contains(lower, strings.ToLower(api.HeaderPeerToken)) {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	h.Add("Vary", "Origin, Access-Control-Request-Headers")
	w.WriteHeader(http.StatusNoContent)
}

// isPreflight reports whether a browser asks what a page of another origin may send to the path of an MCP client.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && strings.HasPrefix(r.URL.Path, "/mcp/") && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// serveMCP answers a request of an MCP client.
func (g *Gateway) serveMCP(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("pool")
	sp, err := g.Spec(r.Context(), name)
	if err == nil && callerOf(r) == nil { // else another host has
		err = admitPage(w, r, sp.MCP.Origins)
	}
	if err != nil {
		return err
	}
	if !sp.MCP.On() {
		return api.Errorf(codeNotFound, "pool %s serves no MCP clients; set mcp.mode in its spec", name)
	}
	principal, connection := principalOf(r), connectionOf(r)
	request := mcp.Request{Pool: name, Spec: sp, Principal: principal.Name, Hold: connection.share.holdAnswer,
		Call: pool.Request{Client: principal.Name, Priority: min(pool.DefaultPriority, principal.MaxPriority),
			Headers: headersToWorker(r.Header), Trace: connection.unsampled}}
	if r.Method == http.MethodPost {
		limit := int64(sp.Pool.MaxMessage)
		if request.Body, err = readBody(w, r, limit, time.Now().Add(requestTimeout(r))); err != nil {
			return err
		}
	}
	limitSilence(connection.Conn)
	request.Forward = g.forwardMCP(w, r, request.Body)
	if caller := callerOf(r); caller != nil {
		request.Here = true
		if caller.Gated {
			guest := caller.Guest()
			request.Guest = &guest
		}
	}
	for {
		err = g.mcp.Serve(w, r, request)
		other, isOther := errors.AsType[api.OtherHostError](err)
		to := append([]api.Peer{{Host: other.Host, Endpoint: other.Endpoint}}, other.Gateways...)
		to = slices.DeleteFunc(to, func(p api.Peer) bool { return p.Endpoint == "" || p.Host == request.Gone })
		if !isOther || len(to) == 0 || request.Here {
			break
		}
		if failure := g.forward(w, r, to[0]); !errors.Is(failure, pool.ErrNotTaken) {
			return request.Fail(w, failure)
		} else if other.Host != "" && (g.peers.Refuses(to[0]) || r.Context().Err() != nil) {
			return err // the host is not gone, and has the session
		}
		// of two that do not answer, the second one may just have continued a session of the first
		request.Here, request.Gone = request.Gone != "", to[0].Host
	}
	_, isOther := errors.AsType[api.OtherHostError](err)
	if request.Here && isOther || request.Guest != nil && api.CodeOf(err).Retryable() && !problemOf(err).Started {
		peer.RefuseCall(w.Header())
	}
	return err
}

// forwardMCP has a host with a free worker begin a session. It returns nil if another host has forwarded the request.
func (g *Gateway) forwardMCP(w http.ResponseWriter, r *http.Request,
	body []byte) func(context.Context, pool.Place) error {
	if callerOf(r) != nil {
		return nil
	}
	arrived := time.Now()
	return func(ctx context.Context, to pool.Place) (err error) {
		if settled := to.Settled; settled != nil { // by its answer: it asks for the body before a worker is found
			defer func() { settled(err == nil) }()
			to.Settled = nil
		}
		caller := g.guest(r, arrived)
		caller.Gated = true
		return g.peers.Forward(w, r.WithContext(ctx), peer.Trip{Place: to, Caller: caller, Body: body})
	}
}

// mcpStore is where the sessions of MCP clients are recorded.
func (g *Gateway) mcpStore(ctx context.Context, pool string) (sessions.Store, error) {
	calls, err := g.config.Sessions.Of(ctx, pool)
	return calls.Store, err
}

// MCPSessions counts, by pool, the sessions of MCP clients. Pools without any are left out.
func (g *Gateway) MCPSessions() map[string]int {
	sessions := map[string]int{}
	for pool, c := range g.mcp.Counts() {
		if c.Sessions > 0 {
			sessions[pool] = c.Sessions
		}
	}
	return sessions
}

// MCPClient is the MCP client that has a process to itself; nil for none.
func (g *Gateway) MCPClient(worker string, incarnation int64) *api.MCPClient {
	return g.mcp.ClientOf(worker, incarnation)
}

// silenceTimeout is how long a client may acknowledge nothing of what was sent; with the default of mcp.keep_alive, one
// that has vanished is noticed within 45 s.
const silenceTimeout = 25 * time.Second

// limitSilence breaks a connection after silenceTimeout.
func limitSilence(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { // where it fails, TCP gives up later
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, silenceOption, int(silenceTimeout/silenceUnit))
			})
		}
	}
}
