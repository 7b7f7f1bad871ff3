package gateway

import (
	"context"
	"net/http"

	"github.com/tempool/tempool/api"
)

// Copies moves the sessions of this host's pools from one store to another. Errors are coded.
type Copies interface {
	// SessionCopy tells how the copy stands that goes on, if one does.
	SessionCopy() api.SessionCopy
	// CopySessions begins a copy of the store that a pool keeps its sessions in. To begin the copy that goes on is no error.
	CopySessions(ctx context.Context, pool string, request api.SessionCopyRequest) (api.SessionCopy, error)
	// StepSessionCopy takes the copy that goes on a step further, or back.
	StepSessionCopy(ctx context.Context, step api.SessionCopyStep) (api.SessionCopy, error)
}

// copyRoutes are for the host's operator: they exist on the Unix socket alone, since a store named by a stranger would get all sessions.
func (g *Gateway) copyRoutes() []route {
	return []route{
		{http.MethodGet, "/v1/admin/sessions/copy", g.operator(g.getCopy)},
		{http.MethodPost, "/v1/admin/sessions/copy", g.operator(exchange(http.StatusAccepted, g.postCopy))},
		{http.MethodPost, "/v1/admin/sessions/copy/step", g.operator(exchange(http.StatusOK, g.postCopyStep))},
	}
}

// operator lets only those through who may open the agent's socket, and names it to others.
func (g *Gateway) operator(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if socket, _ := r.Context().Value(overSocket{}).(bool); !socket {
			writeProblem(w, elsewhere{host: g.config.HostID, endpoint: "unix:" + g.config.Socket, coded: api.Errorf(codeForbidden,
				"%s is for the operator of host %s: ask on that host, over the agent's socket %s", r.URL.Path, g.config.HostID, g.config.Socket)})
			return
		}
		handle(w, r)
	}
}

// getCopy is GET /v1/admin/sessions/copy.
func (g *Gateway) getCopy(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, g.config.Copies.SessionCopy())
}

// postCopy is POST /v1/admin/sessions/copy?pool=….
func (g *Gateway) postCopy(ctx context.Context, r *http.Request, request api.SessionCopyRequest) (api.SessionCopy, error) {
	return g.config.Copies.CopySessions(ctx, r.URL.Query().Get("pool"), request)
}

// postCopyStep is POST /v1/admin/sessions/copy/step.
func (g *Gateway) postCopyStep(ctx context.Context, _ *http.Request, step api.SessionCopyStep) (api.SessionCopy, error) {
	return g.config.Copies.StepSessionCopy(ctx, step)
}
