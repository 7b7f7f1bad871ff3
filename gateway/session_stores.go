package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/sessions"
)

const (
	// maxBackups is how many exports and imports may be under way: each holds some sessions in memory for as long as its
	// client takes.
	maxBackups = 4
	// importTimeout bounds an import.
	importTimeout = time.Hour
)

// backup wraps the handler of one of at most maxBackups requests, which end with the gateway.
func (g *Gateway) backup(handle func(context.Context, http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return orProblem(func(w http.ResponseWriter, r *http.Request) error {
		select {
		case g.backups <- struct{}{}:
			defer func() { <-g.backups }()
		default:
			return api.Errorf(api.CodeUnavailable,
				"%d exports and imports of sessions are under way at this gateway: repeat the request when one has ended",
				maxBackups).After(time.Second)
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(g.life, cancel)()
		return handle(ctx, w, r)
	})
}

// exportSessions answers with a backup. A failure halfway is its last line, and the connection is closed, so that no
// client takes it for a whole one.
func (g *Gateway) exportSessions(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	calls, err := g.config.Sessions.ToList(ctx, r.PathValue("pool"))
	if err != nil {
		return err
	}
	listing, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	ids, err := calls.Store.IDs(listing)
	if err != nil {
		return err
	}
	ids = slices.DeleteFunc(ids, sessions.IsReserved)
	answer := http.NewResponseController(w)
	_ = answer.SetReadDeadline(time.Time{}) // a large store takes its time
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return nil
	}
	out := bufio.NewWriterSize(w, 64<<10)
	if _, err = sessions.WriteBackup(ctx, calls.Store, ids, r.PathValue("pool"), time.Now(), out); err != nil {
		p := problemOf(err)
		_ = json.NewEncoder(out).Encode(api.SessionBackupFailure{Code: p.Code, Error: p.Detail})
	}
	if flushed := out.Flush(); flushed != nil || err != nil {
		_ = answer.Flush()
		panic(http.ErrAbortHandler)
	}
	return nil
}

// importSessions restores a backup, as it arrives.
func (g *Gateway) importSessions(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	anyPool, err := isSet(r.URL.Query(), "any_pool", false)
	if err != nil {
		return err
	}
	calls, err := g.config.Sessions.Of(ctx, r.PathValue("pool"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	if err := connectionOf(r).share.growBody(ctx, sessions.ImportMemory); err != nil {
		return err
	}
	body := &bodyReader{in: r.Body, w: w, until: time.Now().Add(importTimeout)}
	done, err := sessions.Import(ctx, calls.Store, r.PathValue("pool"), anyPool, body)
	switch {
	case err != nil && g.life.Err() != nil:
		return api.Errorf(api.CodeUnavailable,
			"the gateway is shutting down during the import (%s); repeat it, which keeps what is done", done).After(time.Second)
	case err != nil:
		return err
	}
	writeJSON(w, http.StatusOK, done)
	return nil
}

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
	if !strings.HasPrefix(r.URL.Path, "/v1/admin/") || connectionOf(r).peer != nil {
		return err
	}
	return api.OtherHostError{Host: g.config.HostID, Endpoint: "unix:" + g.config.Socket,
		Coded: api.Errorf(api.CodeForbidden,
			"%s; the operator of host %s may send the request over the agent's socket, %s", api.MessageOf(err), g.config.HostID,
			g.config.Socket)}
}
