package gateway

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
)

// answerTimeout bounds a request that is not a call and does not ask to wait.
const answerTimeout = 30 * time.Second

// route is the handler of one method on one path.
type route struct {
	method, path string
	handle       http.HandlerFunc
}

func (g *Gateway) routes() []route {
	routes := []route{
		{http.MethodPost, "/v1/pools/{pool}/call/{method...}", orProblem(g.callPool)},
		{http.MethodPost, "/v1/pools/{pool}/leases", orProblem(g.postLease)},
		{http.MethodPost, "/v1/leases/{id}/call/{method...}", orProblem(g.callLease)},
		{http.MethodPost, "/v1/leases/{id}/notify/{method...}", orProblem(g.notifyLease)},
		{http.MethodPut, "/v1/leases/{id}", exchangeJSON(http.StatusOK, g.putLease)},
		{http.MethodDelete, "/v1/leases/{id}", answerJSON(http.StatusOK, g.deleteLease)},
		{http.MethodGet, "/v1/pools", answerJSON(http.StatusOK, g.getPools)},
		{http.MethodGet, "/v1/pools/{pool}", answerJSON(http.StatusOK, g.getPool)},
		{http.MethodGet, "/v1/workers", answerJSON(http.StatusOK, g.getWorkers)},
		{http.MethodGet, "/healthz", getHealth},
		{http.MethodGet, "/readyz", g.getReady},
		{http.MethodGet, "/openapi.json", getOpenAPI},
	}
	if g.config.Sessions != nil {
		routes = append(routes, sessionRoutes(g.config.Sessions)...)
	}
	if g.config.Copies != nil {
		routes = append(routes, g.copyRoutes(g.config.Copies)...)
	}
	return routes
}

// registerRoutes registers the routes, and problems for every other path and method.
func (g *Gateway) registerRoutes() {
	allowed := make(map[string][]string)
	for _, r := range g.routes() {
		g.mux.HandleFunc(r.method+" "+r.path, r.handle)
		allowed[r.path] = append(allowed[r.path], r.method)
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
		if before, open := strings.CutSuffix(path, "/{method...}"); open { // the mux would redirect a path without a method
			g.mux.HandleFunc(before, notFound)
		}
	}
	g.mux.HandleFunc("/", notFound)
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, api.Errorf(codeNotFound, "no route %s; GET /openapi.json lists the routes", r.URL.Path))
}

// rejectUnclean answers 404 to a path that the mux would redirect to a cleaner one, so that no call reaches another method.
func rejectUnclean(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.EscapedPath()
		suspect := !strings.HasPrefix(asked, "/") || strings.Contains(asked, "//") || strings.Contains(asked, "/.")
		if suspect && path.Clean("/"+asked) != strings.TrimSuffix(asked, "/") {
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
			writeProblem(w, err)
		}
	}
}

// answerJSON handles a request without a body: it answers with the JSON of do's result and the status, or with a problem. ctx ends after
// answerTimeout.
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
