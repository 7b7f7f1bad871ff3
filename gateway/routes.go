package gateway

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/ui"
)

// answerTimeout bounds a request that is not a call and does not ask to wait.
const answerTimeout = 30 * time.Second

// route is the handler of one method on one path, and what a client needs to reach it.
type route struct {
	method, path string
	right        access.Rights
	scope        scope
	handle       http.HandlerFunc
}

// anyMethod ends the path of calls and notifications.
const anyMethod = "/{method...}"

// scope says which pools a client must be allowed to use for a request.
type scope int

const (
	anyPool     scope = iota // none in particular; the answer has only pools that the client may use
	poolInPath               // the one in the path
	poolOfLease              // that of the lease in the path
	poolInQuery              // the one in the query; without one, every pool
	everyPool
)

func (g *Gateway) routes() []route {
	return slices.Concat([]route{
		{http.MethodPost, "/v1/pools/{pool}/call/{method...}", access.Call, poolInPath, g.orProblem(g.callPool)},
		{http.MethodPost, "/v1/pools/{pool}/workers/{slot}/call/{method...}", access.Call, poolInPath,
			g.atItsHost(g.callPool)},
		{http.MethodPost, "/v1/admin/pools/{pool}/workers/{slot}/release", access.Admin, poolInPath,
			g.atItsHost(g.releaseKey)},
		{http.MethodPost, "/v1/pools/{pool}/leases", access.Lease, poolInPath, g.orProblem(g.postLease)},
		{http.MethodPost, "/v1/leases/{id}/call/{method...}", access.Lease, poolOfLease, g.atItsHost(g.callLease)},
		{http.MethodPost, "/v1/leases/{id}/notify/{method...}", access.Lease, poolOfLease,
			g.atItsHost(g.notifyLease)},
		{http.MethodPut, "/v1/leases/{id}", access.Lease, poolOfLease,
			g.leaseAtItsHost(exchangeJSON(http.StatusOK, g.putLease))},
		{http.MethodDelete, "/v1/leases/{id}", access.Lease, poolOfLease,
			g.leaseAtItsHost(answerJSON(http.StatusOK, g.deleteLease))},
		{http.MethodGet, "/v1/pools", access.Read, anyPool, answerJSON(http.StatusOK, g.getPools)},
		{http.MethodGet, "/v1/pools/{pool}", access.Read, poolInPath, answerJSON(http.StatusOK, g.getPool)},
		{http.MethodGet, "/v1/pools/{pool}/queue", access.Read, poolInPath, answerJSON(http.StatusOK, g.getQueue)},
		{http.MethodGet, "/v1/pools/{pool}/slots", access.Call, poolInPath, answerJSON(http.StatusOK, g.getSlots)},
		{http.MethodGet, "/v1/pools/{pool}/report", access.Read, poolInPath, answerJSON(http.StatusOK, g.getReport)},
		{http.MethodGet, "/v1/pools/{pool}/samples", access.Read, poolInPath, answerJSON(http.StatusOK, g.getSamples)},
		{http.MethodGet, "/v1/pools/{pool}/logs", access.Read, poolInPath, g.whileAllowed(orProblem(g.getPoolLogs))},
		{http.MethodGet, "/v1/workers/{pool}/{n}/logs", access.Read, poolInPath,
			g.whileAllowed(g.atItsHost(g.getWorkerLog))},
		{http.MethodGet, "/v1/events", access.Read, anyPool, g.whileAllowed(orProblem(g.getEvents))},
		{http.MethodGet, "/v1/workers", access.Read, anyPool, answerJSON(http.StatusOK, g.getWorkers)},
		{http.MethodGet, "/healthz", 0, anyPool, getHealth},
		{http.MethodGet, "/readyz", 0, anyPool, g.getReady},
		{http.MethodGet, "/openapi.json", 0, anyPool, getOpenAPI},
	}, g.mcpRoutes(), g.sessionRoutes(), g.bindingRoutes(), copyRoutes(g.config.Copies))
}

// registerRoutes registers the routes, and problems for every other path and method.
func (g *Gateway) registerRoutes() {
	allowed := make(map[string][]string)
	for _, r := range g.routes() {
		handle := g.traced(r, r.guard(g.refer))
		g.mux.HandleFunc(r.method+" "+r.path, handle)
		before, open := strings.CutSuffix(r.path, anyMethod)
		if open { // the mux would redirect a path without a method
			g.mux.HandleFunc(before, notFound)
		}
		// Workers of protocol none take every method; see serveCall. The usual one is found first, in half the allocations.
		if open && strings.HasSuffix(before, "/call") {
			g.mux.HandleFunc(r.path, handle)
		} else {
			allowed[r.path] = append(allowed[r.path], r.method)
		}
	}
	for path, methods := range allowed {
		if slices.Contains(methods, http.MethodGet) {
			methods = append(methods, http.MethodHead)
		}
		allow := strings.Join(methods, ", ")
		g.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", allow)
			writeProblem(w, api.Errorf(codeMethodNotAllowed, "%s allows %s, not %s", r.URL.Path, allow, r.Method))
		})
	}
	g.mux.HandleFunc("OPTIONS /mcp/{pool}", answerPreflight)
	g.mux.HandleFunc("/", notFound)
}

// guard lets those requests pass whose client has the route's right on the pools that they concern.
func (rt route) guard(refer func(*http.Request, error) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := rt.authorize(principalOf(r), r); err != nil {
			writeProblem(w, refer(r, err))
			return
		}
		rt.handle(w, r)
	}
}

func (rt route) authorize(p *access.Principal, r *http.Request) error {
	if !p.Has(rt.right) {
		return api.Errorf(api.CodeForbidden, "%s does not have the right %q, which %s %s requires", p.Name, rt.right,
			rt.method, rt.path)
	}
	if rt.scope == poolInPath && !rt.isCall() { // a call finds no such pool
		if invalid := api.CheckPoolName(r.PathValue("pool"), api.CodePoolNotFound); invalid != nil {
			return invalid
		}
	}
	if p.EveryPool() {
		return nil
	}
	pool := ""
	switch rt.scope {
	case anyPool:
		return nil
	case poolInPath:
		pool = r.PathValue("pool")
	case poolOfLease:
		id, _ := api.SplitLeaseID(r.PathValue("id"))
		ref, err := api.ParseLeaseID(id)
		if err != nil {
			return err
		}
		pool = ref.Pool
	case poolInQuery:
		pool = r.URL.Query().Get("pool")
	}
	if pool == "" {
		return api.Errorf(api.CodeForbidden, "%s may use only some pools, but %s %s concerns all pools", p.Name, rt.method,
			rt.path)
	}
	if !p.MayUse(pool) {
		return api.Errorf(api.CodeForbidden, "%s may not use pool %s", p.Name, pool)
	}
	return nil
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, api.Errorf(codeNotFound, "no route %s; GET /openapi.json lists the routes", r.URL.Path))
}

// rejectUnclean answers 404 to a path that the mux would redirect to a cleaner one, and to one with a dot segment once
// it is decoded, so that no call reaches another method, be it at a worker of protocol none.
func rejectUnclean(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.EscapedPath()
		suspect := !strings.HasPrefix(asked, "/") || strings.Contains(asked, "//") || strings.Contains(asked, "/.")
		dotted := strings.Contains(r.URL.Path, "/.") && slices.ContainsFunc(strings.Split(r.URL.Path, "/"),
			func(segment string) bool { return segment == "." || segment == ".." })
		if dotted || suspect && path.Clean("/"+asked) != strings.TrimSuffix(asked, "/") {
			notFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// orProblem answers with the error of a handler that has not answered.
func orProblem(handle func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := handle(w, r); err != nil {
			p := problemOf(err)
			if p.WorkerError != nil && !principalOf(r).Has(access.Read) { // as to the log: it names files of the host
				p.WorkerError.Traceback = ""
			}
			p.write(w)
		}
	}
}

// answerJSON handles a request without a body: it answers with the JSON of do's result and the status, or with a
// problem. ctx ends after answerTimeout.
func answerJSON[A any](status int, do func(context.Context, *http.Request) (A, error)) http.HandlerFunc {
	return orProblem(func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		answer, err := do(ctx, r)
		if err == nil {
			writeJSON(w, status, answer)
		}
		return err
	})
}

// exchangeJSON is answerJSON for a request whose body is the JSON of a Q.
func exchangeJSON[Q, A any](status int, do func(context.Context, *http.Request, Q) (A, error)) http.HandlerFunc {
	return orProblem(func(w http.ResponseWriter, r *http.Request) error {
		var request Q
		if err := readJSON(w, r, &request); err != nil {
			return err
		}
		answerJSON(status, func(ctx context.Context, r *http.Request) (A, error) { return do(ctx, r, request) })(w, r)
		return nil
	})
}

// registerDashboard serves the dashboard at /ui. It knows the tokens once the gateway has started.
func (g *Gateway) registerDashboard() {
	config := ui.Config{
		Fleet: g.config.Fleet, HostID: g.config.HostID, Namespace: g.config.Namespace, TemporalUI: g.config.TemporalUI,
		Logger:   g.config.Logger,
		Outage:   func() time.Duration { return g.Health().Outage },
		Endpoint: g.Endpoint, OwnEndpoint: "unix:" + g.config.Socket, Refuse: writeProblem,
	}
	if g.config.Security.TokensFile != "" {
		config.Lookup = func(secret string) *access.Principal { return g.auth.tokens.Lookup(secret) }
	}
	g.dashboard = ui.New(config)
	for _, pattern := range []string{"/ui", "/ui/"} {
		g.mux.HandleFunc(pattern, g.whileAllowed(g.serveDashboard))
	}
}

// isDashboard reports whether a path belongs to the dashboard.
func isDashboard(path string) bool { return path == "/ui" || strings.HasPrefix(path, "/ui/") }

// serveDashboard ends the streams of its pages when the gateway closes.
func (g *Gateway) serveDashboard(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(g.life, cancel)()
	g.dashboard.Serve(w, r.WithContext(ctx), principalOf(r))
}
