package gateway

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/affinity"
)

// Bindings are those of sessions to workers of this host; affinity.Table is one, which documents its methods.
type Bindings interface {
	Bindings(pool, after string, limit int) (page []affinity.Binding, more bool)
	Where(pool, session string) (worker string)
	Bind(pool, session, worker string) (was string, bound bool)
	UnbindUnless(pool, session, worker string)
}

// bindingRoutes are the requests about which worker of this host serves the calls of a session.
func (g *Gateway) bindingRoutes(b Bindings) []route {
	h := bindingHandlers{b, g.Locate}
	const one = "/v1/pools/{pool}/bindings/{session}"
	return []route{
		{http.MethodGet, "/v1/pools/{pool}/bindings", access.Sessions, poolInPath, answerJSON(http.StatusOK, h.list)},
		{http.MethodGet, one, access.Sessions, poolInPath, answerJSON(http.StatusOK, h.get)},
		{http.MethodPut, one, access.Sessions, poolInPath, exchangeJSON(http.StatusOK, h.put)},
		{http.MethodDelete, one, access.Sessions, poolInPath, orProblem(h.delete)},
	}
}

type bindingHandlers struct {
	table Bindings
	// locate returns nil if the worker has a process here, else why not and who serves it.
	locate func(ctx context.Context, pool, worker string) error
}

func (h bindingHandlers) list(_ context.Context, r *http.Request) (page api.SessionBindings, err error) {
	query, limit := r.URL.Query(), defaultListLimit
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > api.MaxBindingsPage {
			return page, api.Errorf(api.CodeInvalid, "limit=%s is not a number from 1 to %d", text, api.MaxBindingsPage)
		}
	}
	found, more := h.table.Bindings(r.PathValue("pool"), query.Get("after"), limit)
	page.Bindings = make([]api.SessionBinding, len(found))
	for i, b := range found {
		page.Bindings[i] = api.SessionBinding{Session: b.Session, Worker: b.Worker}
	}
	if more {
		page.Next = found[len(found)-1].Session
	}
	return page, nil
}

func (h bindingHandlers) get(_ context.Context, r *http.Request) (api.SessionBinding, error) {
	pool, session, err := bindingOf(r)
	return api.SessionBinding{Session: session, Worker: h.table.Where(pool, session)}, err
}

// put binds a session. It runs no hook: what a process keeps of the session stays there.
func (h bindingHandlers) put(ctx context.Context, r *http.Request, b api.BindRequest) (api.SessionBinding, error) {
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
	if err := h.locate(ctx, pool, worker); err != nil {
		return api.SessionBinding{}, err
	}
	if _, bound := h.table.Bind(pool, session, worker); !bound {
		return api.SessionBinding{}, api.Errorf(api.CodeDraining, "%s accepts no more sessions: it is draining, or its sessions are moving to other workers", worker).After(time.Second)
	}
	return api.SessionBinding{Session: session, Worker: worker}, nil
}

// delete removes a binding, unless it is to the worker that the query keeps.
func (h bindingHandlers) delete(w http.ResponseWriter, r *http.Request) error {
	pool, session, err := bindingOf(r)
	if err != nil {
		return err
	}
	h.table.UnbindUnless(pool, session, r.URL.Query().Get("keep"))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func bindingOf(r *http.Request) (pool, session string, err error) {
	pool, session = r.PathValue("pool"), r.PathValue("session")
	if invalid := api.CheckPoolName(pool, api.CodePoolNotFound); invalid != nil {
		return pool, session, invalid
	}
	return pool, session, sessions.CheckID(session)
}
