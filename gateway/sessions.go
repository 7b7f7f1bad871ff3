package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/sessions"
)

// Sessions finds the session store of a pool and the TTL of its sessions. Pool "" stands for the one store of all pools
// of this host. Errors are coded.
type Sessions interface {
	Of(ctx context.Context, pool string) (sessions.HostCalls, error)
	// ToList is Of, for a list or a backup: it does not make this host the one that has the pool's sessions.
	ToList(ctx context.Context, pool string) (sessions.HostCalls, error)
}

// maxSessionBody bounds the body of a request about a session: the size of a session, and as much for white space.
const maxSessionBody = 2 * sessions.MaxBody

// sessionRoutes are the requests about clients' sessions.
func (g *Gateway) sessionRoutes() []route {
	return []route{
		{http.MethodGet, "/v1/sessions", access.Sessions, poolInQuery, answerJSON(http.StatusOK, g.listSessions)},
		{http.MethodPost, "/v1/sessions", access.Sessions, poolInQuery, g.session(postSession)},
		{http.MethodGet, "/v1/sessions/{session}", access.Sessions, poolInQuery, g.session(getSession)},
		{http.MethodPut, "/v1/sessions/{session}", access.Sessions, poolInQuery, g.session(putSession)},
		{http.MethodPatch, "/v1/sessions/{session}", access.Sessions, poolInQuery, g.session(patchSession)},
		{http.MethodDelete, "/v1/sessions/{session}", access.Sessions, poolInQuery, g.session(deleteSession)},
		// a client that may read and write each session may do so with all of them
		{http.MethodGet, "/v1/pools/{pool}/sessions/export", access.Sessions, poolInPath, g.backup(g.exportSessions)},
		{http.MethodPost, "/v1/pools/{pool}/sessions/import", access.Sessions, poolInPath, g.backup(g.importSessions)},
	}
}

// sessionRequest is a request about one session, with the session's store.
type sessionRequest struct {
	sessions.HostCalls
	id string
	// version is the version that the session must have, 0 for any. exists says that the session must exist, missing that
	// it must not.
	version         int64
	exists, missing bool
	body            []byte
}

// session wraps the handler of a request about one session. The handler returns a nil session for one that it deleted.
func (g *Gateway) session(handle func(context.Context,
	sessionRequest) (s *sessions.Session, created bool, err error)) http.HandlerFunc {
	return orProblem(func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		request, err := readSessionRequest(w, r)
		if err != nil {
			return err
		}
		if request.HostCalls, err = g.config.Sessions.Of(ctx, r.URL.Query().Get("pool")); err != nil {
			return err
		}
		s, created, err := handle(ctx, request)
		switch {
		case err != nil:
			return err
		case s == nil:
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(s.Version, 10)))
		status := http.StatusOK
		if created {
			status = http.StatusCreated
		}
		writeJSON(w, status, s)
		return nil
	})
}

func readSessionRequest(w http.ResponseWriter, r *http.Request) (request sessionRequest, err error) {
	if r.Method == http.MethodPost {
		request.id = sessions.NewTemporaryID()
		request.body, err = readSession(w, r)
		return request, err
	}
	request.id = r.PathValue("session")
	if err := sessions.CheckClientID(request.id); err != nil {
		return request, err
	}
	if match := r.Header.Get("If-Match"); match == "*" {
		request.exists = true
	} else if match != "" {
		text, quoted := strings.CutPrefix(match, `"`)
		text, closed := strings.CutSuffix(text, `"`)
		request.version, err = strconv.ParseInt(text, 10, 64)
		if err != nil || !quoted || !closed || request.version < 1 {
			return request, api.Errorf(api.CodeInvalid,
				`If-Match: %s is not the ETag of a session, which is its version in quotes: "3"`, match)
		}
		request.exists = true
	}
	if none := r.Header.Get("If-None-Match"); none == "*" {
		request.missing = true
	} else if none != "" && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return request, api.Errorf(api.CodeInvalid, "If-None-Match takes only *, which creates a session and replaces none")
	}
	if r.Method != http.MethodPut && r.Method != http.MethodPatch {
		return request, nil
	}
	request.body, err = readSession(w, r)
	return request, err
}

func readSession(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return readSmall(w, r, maxSessionBody, fmt.Sprintf("; a session may take %d", sessions.MaxBody))
}

// check fails unless the session has the version that the request asks for.
func (r sessionRequest) check(s *sessions.Session) error {
	if r.version == 0 {
		return nil
	}
	return sessions.CheckVersion(s, r.version)
}

func getSession(ctx context.Context, r sessionRequest) (*sessions.Session, bool, error) {
	s, err := r.Store.Get(ctx, r.id)
	if err == nil {
		err = r.check(s)
	}
	return s, false, err
}

// postSession creates an anonymous session, which lives for several calls.
func postSession(ctx context.Context, r sessionRequest) (*sessions.Session, bool, error) {
	var document sessions.Session
	if len(bytes.TrimSpace(r.body)) > 0 {
		var err error
		if document, err = decodeSession(r.body); err != nil {
			return nil, false, err
		}
	}
	if document.ID != "" || document.Version != 0 {
		return nil, false, api.Errorf(api.CodeInvalid,
			"POST makes an anonymous session, whose id and version the gateway chooses; create a session with an id by PUT "+
				"/v1/sessions/{id}")
	}
	s, err := sessions.Create(ctx, r.Store, r.named(document))
	return s, true, err
}

// decodeSession decodes the body of a request that writes a whole session.
func decodeSession(body []byte) (document sessions.Session, err error) {
	if err := decodeOnly(body, &document); err != nil {
		return document, api.Errorf(api.CodeInvalid,
			`the body is not a session such as {"data": {"key": "value"}, "ttl": "1h"}: %w`, err)
	}
	return document, nil
}

// named is the session that a document describes, with the id of the request and a TTL.
func (r sessionRequest) named(document sessions.Session) *sessions.Session {
	if document.ID = r.id; document.TTL == 0 {
		document.TTL = r.DefaultTTL(r.id)
	}
	return &document
}

// putSession creates a session, or replaces the fields that a client may write.
func putSession(ctx context.Context, r sessionRequest) (*sessions.Session, bool, error) {
	document, err := decodeSession(r.body)
	if err != nil {
		return nil, false, err
	}
	if document.ID != "" && document.ID != r.id {
		return nil, false, api.Errorf(api.CodeInvalid, "the body names session %q, the path %q", document.ID, r.id)
	}
	if document.Version != 0 { // the body is a session that was read; the fields that only the store writes are ignored
		if r.version != 0 && r.version != document.Version {
			return nil, false, api.Errorf(api.CodeInvalid, "the body has version %d, If-Match %d", document.Version, r.version)
		}
		r.version, r.exists = document.Version, true
	}
	session := r.named(document)
	for {
		if !r.missing {
			s, err := r.Store.Update(ctx, r.id, func(s *sessions.Session) error {
				s.Programs, s.Data, s.Metadata, s.TTL = session.Programs, session.Data, session.Metadata, session.TTL
				return r.check(s)
			})
			if r.exists || !errors.Is(err, api.ErrSessionNotFound) {
				return s, false, err
			}
		}
		s, err := sessions.Create(ctx, r.Store, session)
		if r.missing || !errors.Is(err, api.ErrSessionExists) {
			return s, true, err
		}
	}
}

func patchSession(ctx context.Context, r sessionRequest) (*sessions.Session, bool, error) {
	if r.missing {
		return nil, false, api.Errorf(api.CodeInvalid, "PATCH does not create a session; send If-None-Match with PUT")
	}
	s, err := r.Store.Update(ctx, r.id, func(s *sessions.Session) error {
		if err := r.check(s); err != nil {
			return err
		}
		return r.Patch(s, r.body)
	})
	return s, false, err
}

func deleteSession(ctx context.Context, r sessionRequest) (*sessions.Session, bool, error) {
	if r.version != 0 || r.missing {
		return nil, false, api.Errorf(api.CodeInvalid,
			"DELETE accepts no version condition; it deletes the session at any version")
	}
	return nil, false, r.Store.Delete(ctx, r.id)
}

// Bounds of GET /v1/sessions.
const (
	defaultListLimit = 100
	maxListLimit     = 1000
)

// listSessions is GET /v1/sessions. It does not extend the sessions' TTL.
func (g *Gateway) listSessions(ctx context.Context, r *http.Request) (page tempool.SessionList, err error) {
	query := r.URL.Query()
	limit, err := integer(query, "limit", defaultListLimit, 1, maxListLimit)
	if err != nil {
		return page, err
	}
	calls, err := g.config.Sessions.ToList(ctx, query.Get("pool"))
	if err != nil {
		return page, err
	}
	return summaries(ctx, calls.Store, query.Get("after"), limit)
}

// summaries reads up to limit sessions after an id.
func summaries(ctx context.Context, store sessions.Store, after string, limit int) (tempool.SessionList, error) {
	page := tempool.SessionList{Sessions: []tempool.SessionSummary{}}
	for s, err := range sessions.List(ctx, store, after) {
		if err != nil {
			return page, err
		}
		if len(page.Sessions) == limit {
			page.Next = after
			return page, nil
		}
		body, err := s.Body()
		if err != nil {
			return page, err
		}
		page.Sessions = append(page.Sessions, tempool.SessionSummary{
			ID: s.ID, Version: s.Version, CreatedAt: s.CreatedAt, LastAccessed: s.LastAccessed, TTL: s.TTL, Bytes: len(body),
		})
		after = s.ID
	}
	return page, nil
}
