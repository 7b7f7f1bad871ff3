package tempool

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
	"github.com/tempool/tempool/spec"
)

// Session is a client's state between calls, in the session store of a pool's gateways. It is safe for concurrent use.
type Session struct {
	pool *Pool
	id   string
}

// SessionState is the content of a session.
type SessionState struct {
	ID string `json:"id,omitempty"`
	// Programs, Data and Metadata map keys to JSON.
	Programs map[string]json.RawMessage `json:"programs"`
	Data     map[string]json.RawMessage `json:"data"`
	Metadata map[string]json.RawMessage `json:"metadata"`
	// Version is 1 at the creation and increases by 1 with each change.
	Version      int64     `json:"version,omitzero"`
	CreatedAt    time.Time `json:"created_at,omitzero"`
	LastAccessed time.Time `json:"last_accessed,omitzero"`
	// TTL is how long the session lives after its last use; 0 means the pool's sessions.ttl.
	TTL spec.Duration `json:"ttl,omitzero"`
}

// SessionSummary is one session in a SessionList.
type SessionSummary struct {
	ID           string        `json:"id"`
	Version      int64         `json:"version"`
	CreatedAt    time.Time     `json:"created_at"`
	LastAccessed time.Time     `json:"last_accessed"`
	TTL          spec.Duration `json:"ttl"`
	// Bytes is the size of programs, data and metadata as JSON.
	Bytes int `json:"bytes"`
}

// SessionList is one page of a store's sessions. Next is the argument after for the next page, "" on the last page.
type SessionList struct {
	Sessions []SessionSummary `json:"sessions"`
	Next     string           `json:"next"`
}

// sessionTimeout bounds one session request to one gateway.
const sessionTimeout = 30 * time.Second

// Session returns the session with this id in the pool's store without contacting anything.
func (p *Pool) Session(id string) *Session { return &Session{p, id} }

// NewSession creates an anonymous session, with an id that the gateway chooses. It lives for state.TTL after its last
// use, by default for the pool's sessions.anonymous_ttl. It ignores state.ID and state.Version, and fails with
// payload_too_large, store_full, invalid, store_unavailable, pool_not_found or unavailable.
func (p *Pool) NewSession(ctx context.Context, state SessionState) (*Session, *SessionState, error) {
	state.ID, state.Version = "", 0
	var made SessionState
	if err := p.sessionRequest(ctx,
		transport.Request{Method: http.MethodPost, Path: sessionPath(p.name, "", url.Values{}),
			Body: transport.JSONBody(state)}, &made); err != nil {
		return nil, nil, err
	}
	return p.Session(made.ID), &made, nil
}

// Sessions lists up to limit sessions (0: 100, at most 1000) of the pool's store whose ids come after the id after, in
// the order of their ids. Other pools may share the store. Listing does not extend a session's life. It fails with
// invalid, pool_not_found, store_unavailable or unavailable.
func (p *Pool) Sessions(ctx context.Context, after string, limit int) (*SessionList, error) {
	query := url.Values{"after": {after}}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	var list SessionList
	return &list, p.sessionRequest(ctx, transport.Request{Method: http.MethodGet, Path: sessionPath(p.name, "", query)},
		&list)
}

// ID returns the id of the session.
func (s *Session) ID() string { return s.id }

// Get reads the session and extends its life. It fails with session_not_found, store_unavailable, pool_not_found or
// unavailable.
func (s *Session) Get(ctx context.Context) (*SessionState, error) {
	return s.request(ctx, http.MethodGet, nil, nil)
}

// Create creates the session. It fails with session_exists, payload_too_large, store_full, invalid, and as Get does.
func (s *Session) Create(ctx context.Context, state SessionState) (*SessionState, error) {
	state.Version = 0
	return s.request(ctx, http.MethodPut, http.Header{"If-None-Match": {"*"}}, state)
}

// Put creates the session or replaces its content. If state.Version is set, as in a state that Get returned, Put
// replaces only that version and otherwise fails with version_conflict. It also fails with payload_too_large,
// store_full, invalid, and as Get does.
func (s *Session) Put(ctx context.Context, state SessionState) (*SessionState, error) {
	return s.request(ctx, http.MethodPut, nil, state)
}

// Patch applies a JSON merge patch (RFC 7396) of programs, data, metadata and ttl as a whole or not at all. It fails
// with version_conflict unless the session has the given version (0: any), with payload_too_large, invalid, and as Get
// does.
func (s *Session) Patch(ctx context.Context, patch any, version int64) (*SessionState, error) {
	header := http.Header{}
	if version != 0 {
		header.Set("If-Match", strconv.Quote(strconv.FormatInt(version, 10)))
	}
	return s.request(ctx, http.MethodPatch, header, patch)
}

// Delete deletes the session. It fails as Get does.
func (s *Session) Delete(ctx context.Context) error {
	_, err := s.request(ctx, http.MethodDelete, nil, nil)
	return err
}

func (s *Session) request(ctx context.Context, method string, header http.Header, in any) (*SessionState, error) {
	if s.id == "" || s.id == "." || s.id == ".." {
		return nil, errSessionID(s.id)
	}
	request := transport.Request{Method: method, Path: sessionPath(s.pool.name, "/"+url.PathEscape(s.id), url.Values{}),
		Header: header, Body: transport.JSONBody(in)}
	if method == http.MethodDelete {
		return nil, s.pool.sessionRequest(ctx, request, nil)
	}
	var state SessionState
	if err := s.pool.sessionRequest(ctx, request, &state); err != nil {
		return nil, err
	}
	return &state, nil
}

func errSessionID(id string) error {
	return api.Errorf(api.CodeInvalid, "invalid session id %q; it must not be empty, \".\" or \"..\"", id)
}

func sessionPath(pool, suffix string, query url.Values) string {
	query.Set("pool", pool)
	return "/v1/sessions" + suffix + "?" + query.Encode()
}

// sessionRequest sends a request to the pool's gateways and reads the answer's JSON into out, unless out is nil. It
// retries a change at another gateway only if the first cannot have made it.
func (p *Pool) sessionRequest(ctx context.Context, request transport.Request, out any) error {
	request.Timeout = sessionTimeout
	reply, err := p.trySessionGateways(ctx, request)
	if err != nil {
		return err
	}
	return reply.ReadJSON(out)
}

// trySessionGateways sends a request about the sessions of the pool to its gateways until one answers.
func (p *Pool) trySessionGateways(ctx context.Context, request transport.Request) (*transport.Reply, error) {
	readOnly := request.Method == http.MethodGet
	return p.tryGateways(ctx, poolRequest{
		send: func(endpoint string) (*transport.Reply, error) { return p.client.transport.Do(ctx, endpoint, request) },
		retryElsewhere: func(err error) bool {
			switch api.CodeOf(err) {
			case api.CodeUnavailable:
				return readOnly || !transport.MayHaveStarted(err)
			case api.CodePoolNotFound, api.CodeNoWorkers: // on that host
				return true
			case api.CodeStoreUnavailable: // on that host; it may have stored a change nevertheless
				return readOnly
			}
			return false
		},
		body: request.Body,
	})
}
