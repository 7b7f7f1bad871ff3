package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/sessions"
)

// bindingRoutes are the requests about which worker of this host serves the calls of a session.
func (g *Gateway) bindingRoutes() []route {
	const one = "/v1/pools/{pool}/bindings/{session}"
	return []route{
		{http.MethodGet, "/v1/pools/{pool}/bindings", access.Sessions, poolInPath, answerJSON(http.StatusOK, g.listBindings)},
		{http.MethodGet, one, access.Sessions, poolInPath, answerJSON(http.StatusOK, g.getBinding)},
		{http.MethodPut, one, access.Sessions, poolInPath, exchangeJSON(http.StatusOK, g.putBinding)},
		{http.MethodDelete, one, access.Sessions, poolInPath, orProblem(g.deleteBinding)},
	}
}

func (g *Gateway) listBindings(_ context.Context, r *http.Request) (page api.SessionBindings, err error) {
	query := r.URL.Query()
	limit, err := integer(query, "limit", defaultListLimit, 1, api.MaxBindingsPage)
	if err != nil {
		return page, err
	}
	found, more := g.config.Affinity.Bindings(r.PathValue("pool"), "", query.Get("after"), limit)
	if page.Bindings = found; more {
		page.Next = found[len(found)-1].Session
	}
	return page, nil
}

func (g *Gateway) getBinding(_ context.Context, r *http.Request) (api.SessionBinding, error) {
	pool, session, err := bindingOf(r)
	return api.SessionBinding{Session: session, Worker: g.config.Affinity.Where(pool, session)}, err
}

// putBinding binds a session. It runs no hook: what a process keeps of the session stays there.
func (g *Gateway) putBinding(ctx context.Context, r *http.Request, b api.BindRequest) (api.SessionBinding, error) {
	pool, session, err := bindingOf(r)
	if err != nil {
		return api.SessionBinding{}, err
	}
	owner, slot, err := api.ParseWorkerName(b.Worker)
	if err == nil && owner != pool {
		err = api.Errorf(api.CodeInvalid, "%s is not a worker of pool %s", b.Worker, pool)
	}
	if err != nil {
		return api.SessionBinding{}, err
	}
	worker := api.WorkerName(pool, slot)
	if err := g.Locate(ctx, pool, worker); err != nil {
		return api.SessionBinding{}, err
	}
	accepts := func(bound string, closed bool) bool { return bound == worker || !closed }
	if !g.BindSession(pool, session, worker, accepts) {
		return api.SessionBinding{}, api.Errorf(api.CodeDraining,
			"%s accepts no more sessions: it is draining, or its sessions are moving to other workers",
			worker).After(time.Second)
	}
	return api.SessionBinding{Session: session, Worker: worker}, nil
}

// deleteBinding removes a binding, unless it is to the worker that the query keeps.
func (g *Gateway) deleteBinding(w http.ResponseWriter, r *http.Request) error {
	pool, session, err := bindingOf(r)
	if err != nil {
		return err
	}
	keep := r.URL.Query().Get("keep")
	g.config.Affinity.Put(pool, session, "", func(bound string, _ bool) bool { return bound != keep })
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func bindingOf(r *http.Request) (pool, session string, err error) {
	pool, session = r.PathValue("pool"), r.PathValue("session")
	return pool, session, sessions.CheckID(session)
}
