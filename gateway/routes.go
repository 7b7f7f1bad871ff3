package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
)

const (
	// maxControlBody bounds a JSON body that is not a call's.
	maxControlBody = 1 << 20
	// answerTimeout bounds a request that is not a call and does not ask to wait.
	answerTimeout = 30 * time.Second
)

// route is one path and what it takes.
type route struct {
	method, path string
	handle       http.HandlerFunc
}

func (g *Gateway) table() []route {
	table := []route{
		{http.MethodPost, "/v1/pools/{pool}/call/{method...}", g.callPool},
		{http.MethodPost, "/v1/pools/{pool}/leases", g.postLease},
		{http.MethodPost, "/v1/leases/{id}/call/{method...}", g.callLease},
		{http.MethodPost, "/v1/leases/{id}/notify/{method...}", g.notifyLease},
		{http.MethodPut, "/v1/leases/{id}", exchange(http.StatusOK, g.putLease)},
		{http.MethodDelete, "/v1/leases/{id}", g.deleteLease},
		{http.MethodGet, "/v1/pools", g.getPools},
		{http.MethodGet, "/v1/pools/{pool}", g.getPool},
		{http.MethodGet, "/v1/workers", g.getWorkers},
		{http.MethodGet, "/healthz", g.getHealth},
		{http.MethodGet, "/readyz", g.getReady},
		{http.MethodGet, "/openapi.json", g.getOpenAPI},
	}
	if g.config.Sessions != nil {
		table = append(table, g.sessionRoutes()...)
	}
	if g.config.Copies != nil {
		table = append(table, g.copyRoutes()...)
	}
	return table
}

// routes registers the table, and problems for every other path and method.
func (g *Gateway) routes() {
	allowed := make(map[string][]string)
	for _, r := range g.table() {
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
			writeProblem(w, api.Errorf(codeMethodNotAllowed, "%s takes %s, not %s", r.URL.Path, allow, r.Method))
		})
	}
	g.mux.HandleFunc("/", notFound)
	for path := range allowed { // the mux would answer a path that ends before its method with a redirect
		if before, open := strings.CutSuffix(path, "/{method...}"); open {
			g.mux.HandleFunc(before, notFound)
		}
	}
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, api.Errorf(codeNotFound, "there is nothing at %s; GET /openapi.json lists what there is", r.URL.Path))
}

// exact lets no path through that the mux would redirect to a cleaner one: a call must not end up at another method.
func exact(next http.Handler) http.Handler {
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

// postLease is POST /v1/pools/{pool}/leases.
func (g *Gateway) postLease(w http.ResponseWriter, r *http.Request) {
	var request CheckoutRequest
	if err := readJSON(w, r, &request); err != nil {
		writeProblem(w, err)
		return
	}
	wait := time.Duration(min(max(request.WaitMS, 0), MaxCheckoutWait.Milliseconds())) * time.Millisecond
	ctx, cancel := context.WithTimeout(r.Context(), wait+answerTimeout)
	defer cancel()
	pool := r.PathValue("pool")
	lease, err := g.Checkout(ctx, pool, request)
	if err != nil {
		writeProblem(w, err)
		return
	}
	if r.Context().Err() != nil { // nobody will ever use it
		g.takeBack(lease.ID)
		return
	}
	w.Header().Set("Location", "/v1/leases/"+lease.ID)
	writeJSON(w, http.StatusCreated, lease)
}

// takeBack checks in a lease whose holder is gone.
func (g *Gateway) takeBack(id string) {
	ctx, cancel := context.WithTimeout(g.life, controlTimeout)
	defer cancel()
	if _, err := g.Checkin(ctx, id, api.OutcomeOK, ""); err != nil {
		g.logger.Warn("a lease whose client went away was not given back; it expires", "lease", id, "error", err)
	}
}

// renewalRequest asks for more time for a lease.
type renewalRequest struct {
	TTLMS int64 `json:"ttl_ms"`
}

// putLease is PUT /v1/leases/{id}.
func (g *Gateway) putLease(ctx context.Context, r *http.Request, request renewalRequest) (*api.Lease, error) {
	return g.Renew(ctx, r.PathValue("id"), request.TTLMS)
}

// deleteLease is DELETE /v1/leases/{id}?outcome=…&error=….
func (g *Gateway) deleteLease(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	query := r.URL.Query()
	result, err := g.Checkin(ctx, r.PathValue("id"), api.Outcome(query.Get("outcome")), query.Get("error"))
	if err != nil {
		writeProblem(w, err)
		return
	}
	writeJSON(w, http.StatusOK, result)
}

// views asks every pool for its workers.
func (g *Gateway) views(ctx context.Context) ([]api.PoolWorkers, error) {
	names, err := g.config.Control.ListPools(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	views := make([]api.PoolWorkers, 0, len(names))
	for _, name := range names {
		view, err := g.config.Control.Workers(ctx, name)
		if errors.Is(err, api.ErrPoolNotFound) {
			continue // it has ended since
		}
		if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return views, nil
}

// getPools is GET /v1/pools.
func (g *Gateway) getPools(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	views, err := g.views(ctx)
	if err != nil {
		writeProblem(w, err)
		return
	}
	writeJSON(w, http.StatusOK, views)
}

// getPool is GET /v1/pools/{pool}.
func (g *Gateway) getPool(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	view, err := g.config.Control.Workers(ctx, r.PathValue("pool"))
	if err != nil {
		writeProblem(w, err)
		return
	}
	writeJSON(w, http.StatusOK, view)
}

// getWorkers is GET /v1/workers.
func (g *Gateway) getWorkers(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	views, err := g.views(ctx)
	if err != nil {
		writeProblem(w, err)
		return
	}
	workers := []api.Worker{}
	for _, view := range views {
		workers = append(workers, view.Workers...)
	}
	writeJSON(w, http.StatusOK, workers)
}

// getHealth is GET /healthz: the gateway answers, so it is alive.
func (g *Gateway) getHealth(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// Readiness is the body of GET /readyz.
type Readiness struct {
	// Status is ready while calls are served (200), else fenced or closing (503).
	Status string `json:"status"`
	Host   string `json:"host"`
	// ControlPlane is ok, or lost while Temporal does not answer.
	ControlPlane string `json:"control_plane"`
	// LostForMS is how long that has been so.
	LostForMS int64 `json:"lost_for_ms,omitempty"`
}

// getReady is GET /readyz.
func (g *Gateway) getReady(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	silence := g.contact.silence(now)
	ready := Readiness{Status: "ready", Host: g.config.HostID, ControlPlane: "ok", LostForMS: silence.Milliseconds()}
	status := http.StatusOK
	if g.contact.lost.Load() {
		ready.ControlPlane = "lost"
	}
	g.mu.RLock()
	closing := g.closing
	g.mu.RUnlock()
	if g.contact.fenced(now) {
		ready.Status, status = "fenced", http.StatusServiceUnavailable
	}
	if closing {
		ready.Status, status = "closing", http.StatusServiceUnavailable
	}
	writeJSON(w, status, ready)
}

// exchange answers a request whose body is JSON of type Q with JSON of type A and the status, or with a problem. What it asks for has to
// be done within answerTimeout.
func exchange[Q, A any](status int, do func(context.Context, *http.Request, Q) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request Q
		if err := readJSON(w, r, &request); err != nil {
			writeProblem(w, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		answer, err := do(ctx, r, request)
		if err != nil {
			writeProblem(w, err)
			return
		}
		writeJSON(w, status, answer)
	}
}

// readJSON reads a body of one JSON object with known keys; an empty body is an empty object.
func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxControlBody))
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return api.Errorf(api.CodePayloadTooLarge, "the body is larger than %d bytes", maxControlBody)
	}
	if err != nil {
		return api.Errorf(api.CodeInvalid, "the request's body cannot be read: %w", err)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return api.Errorf(api.CodeInvalid, "the body is not the JSON expected here: %w", err)
	}
	if decoder.More() {
		return api.Errorf(api.CodeInvalid, "the body holds more than one JSON value")
	}
	return nil
}
