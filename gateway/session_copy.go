package gateway

import (
	"context"
	"net/http"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/dispatch"
)

// Copies moves the sessions of this host's pools from one store to another. Errors are coded.
type Copies interface {
	// SessionCopy returns the state of the copy in progress, if there is one.
	SessionCopy() api.SessionCopy
	// CopySessions starts a copy of a pool's session store. Starting the copy in progress again is no error.
	CopySessions(ctx context.Context, pool string, request api.SessionCopyRequest) (api.SessionCopy, error)
	// StepSessionCopy moves the copy in progress a step forward or back.
	StepSessionCopy(ctx context.Context, step api.SessionCopyStep) (api.SessionCopy, error)
}

// copyRoutes are for the host's operator. They exist on the Unix socket only, because the request names the store that gets all sessions.
func (g *Gateway) copyRoutes(c Copies) []route {
	return []route{
		{http.MethodGet, "/v1/admin/sessions/copy", g.operatorOnly(func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, c.SessionCopy())
		})},
		{http.MethodPost, "/v1/admin/sessions/copy", g.operatorOnly(exchangeJSON(http.StatusAccepted,
			func(ctx context.Context, r *http.Request, request api.SessionCopyRequest) (api.SessionCopy, error) {
				return c.CopySessions(ctx, r.URL.Query().Get("pool"), request)
			}))},
		{http.MethodPost, "/v1/admin/sessions/copy/step", g.operatorOnly(exchangeJSON(http.StatusOK,
			func(ctx context.Context, _ *http.Request, step api.SessionCopyStep) (api.SessionCopy, error) {
				return c.StepSessionCopy(ctx, step)
			}))},
	}
}

// operatorOnly rejects requests that did not come over the Unix socket, and names the socket.
func (g *Gateway) operatorOnly(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isOverSocket(r) {
			writeProblem(w, dispatch.OtherHostError{Host: g.config.HostID, Endpoint: "unix:" + g.config.Socket, Coded: api.Errorf(codeForbidden,
				"%s is for the operator of host %s; send the request on that host over the agent's socket, %s", r.URL.Path, g.config.HostID, g.config.Socket)})
			return
		}
		handle(w, r)
	}
}
