package gateway

import (
	"context"
	"net/http"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
)

// Copies moves the sessions of this host's pools from one store to another. Errors are coded.
type Copies interface {
	// SessionCopy returns the state of the copy in progress, if there is one.
	SessionCopy() api.SessionCopy
	// CopySessions starts a copy of a pool's session store. Starting the copy in progress again is not an error.
	CopySessions(ctx context.Context, pool string, request api.SessionCopyRequest) (api.SessionCopy, error)
	// StepSessionCopy moves the copy in progress a step forward or back.
	StepSessionCopy(ctx context.Context, step api.SessionCopyStep) (api.SessionCopy, error)
}

// copyRoutes are for the host's operator, because the request names the store that gets all sessions.
func copyRoutes(c Copies) []route {
	return []route{
		{http.MethodGet, "/v1/admin/sessions/copy", access.Admin, everyPool, func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, c.SessionCopy())
		}},
		{http.MethodPost, "/v1/admin/sessions/copy", access.Admin, everyPool, exchangeJSON(http.StatusAccepted,
			func(ctx context.Context, r *http.Request, request api.SessionCopyRequest) (api.SessionCopy, error) {
				return c.CopySessions(ctx, r.URL.Query().Get("pool"), request)
			})},
		{http.MethodPost, "/v1/admin/sessions/copy/step", access.Admin, everyPool, exchangeJSON(http.StatusOK,
			func(ctx context.Context, _ *http.Request, step api.SessionCopyStep) (api.SessionCopy, error) {
				return c.StepSessionCopy(ctx, step)
			})},
	}
}

// refer adds to the error of a request for the operator where the operator of this host may send it: to the Unix
// socket.
func (g *Gateway) refer(r *http.Request, err error) error {
	if !strings.HasPrefix(r.URL.Path, "/v1/admin/") || connectionOf(r).peer != nil || g.config.Socket == "" {
		return err
	}
	return api.OtherHostError{Host: g.config.HostID, Endpoint: "unix:" + g.config.Socket,
		Coded: api.Errorf(api.CodeForbidden,
			"%s; the operator of host %s may send the request over the agent's socket, %s", api.MessageOf(err), g.config.HostID,
			g.config.Socket)}
}
