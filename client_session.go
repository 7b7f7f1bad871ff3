package tempool

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Session is one client's state between calls, as the pool's gateways keep it. It is safe for concurrent use.
type Session struct {
	pool *Pool
	id   string
}

// SessionState is what a session holds.
type SessionState struct {
	ID string `json:"id,omitempty"`
	// Programs, Data and Metadata map keys to JSON.
	Programs map[string]json.RawMessage `json:"programs"`
	Data     map[string]json.RawMessage `json:"data"`
	Metadata map[string]json.RawMessage `json:"metadata"`
	// Version is 1 when the session is made and grows by 1 with each change.
	Version      int64     `json:"version,omitzero"`
	CreatedAt    time.Time `json:"created_at,omitzero"`
	LastAccessed time.Time `json:"last_accessed,omitzero"`
	// TTL is how long the session lives after its last use; 0 asks for the pool's sessions.ttl.
	TTL spec.Duration `json:"ttl,omitzero"`
}

// SessionSummary is a session in a list.
type SessionSummary struct {
	ID           string        `json:"id"`
	Version      int64         `json:"version"`
	CreatedAt    time.Time     `json:"created_at"`
	LastAccessed time.Time     `json:"last_accessed"`
	TTL          spec.Duration `json:"ttl"`
	// Bytes are those of programs, data and metadata as JSON.
	Bytes int `json:"bytes"`
}

// SessionList is one page of a store's sessions. Next is the after of the next page, "" on the last.
type SessionList struct {
	Sessions []SessionSummary `json:"sessions"`
	Next     string           `json:"next"`
}

// sessionTimeout bounds one request about a session to one gateway; the context's deadline does, too.
const sessionTimeout = 30 * time.Second

// Session is the session with this id in the store of the pool. Nothing is asked and nothing is made.
func (p *Pool) Session(id string) *Session { return &Session{p, id} }

// Sessions lists up to limit sessions (0: 100, at most 1000) of the pool's store whose ids follow after, in the order of their ids. The
// store may be one that other pools share. No session's life is extended. It fails with invalid, pool_not_found, store_unavailable
// or unavailable.
func (p *Pool) Sessions(ctx context.Context, after string, limit int) (*SessionList, error) {
	query := url.Values{"after": {after}}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	var list SessionList
	return &list, p.aboutSessions(ctx, http.MethodGet, "", query, nil, payload{}, &list)
}

// Get reads the session and extends its life. It fails with session_not_found, store_unavailable, pool_not_found or unavailable.
func (s *Session) Get(ctx context.Context) (*SessionState, error) {
	return s.request(ctx, http.MethodGet, nil, nil)
}

// Create makes the session. It fails with session_exists, payload_too_large, store_full, invalid, and as Get does.
func (s *Session) Create(ctx context.Context, state SessionState) (*SessionState, error) {
	state.Version = 0
	return s.request(ctx, http.MethodPut, http.Header{"If-None-Match": {"*"}}, state)
}

// Put makes the session or replaces what it holds. With a Version, as a state that was read has one, only that version is replaced;
// else it fails with version_conflict. It fails with payload_too_large, store_full, invalid, and as Get does.
func (s *Session) Put(ctx context.Context, state SessionState) (*SessionState, error) {
	return s.request(ctx, http.MethodPut, nil, state)
}

// Patch applies a JSON merge patch (RFC 7396) of programs, data, metadata and ttl, all of it or nothing. It fails with version_conflict
// unless the session has the version, 0 being any; with payload_too_large, invalid, and as Get does.
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
		return nil, api.Errorf(api.CodeInvalid, "%q cannot be a session's id, since a path could not name it", s.id)
	}
	body, err := jsonPayload(in)
	if err != nil {
		return nil, err
	}
	var state *SessionState
	if method != http.MethodDelete {
		state = new(SessionState)
	}
	if err := s.pool.aboutSessions(ctx, method, "/"+url.PathEscape(s.id), url.Values{}, header, body, state); err != nil {
		return nil, err
	}
	return state, nil
}

// aboutSessions makes one request about sessions by one of the pool's gateways and reads the answer's JSON into out, unless that is nil.
// A change goes to another gateway only if the first cannot have seen it.
func (p *Pool) aboutSessions(ctx context.Context, method, rest string, query url.Values, header http.Header, body payload, out any) error {
	if !api.ValidPoolName(p.name) {
		return api.Errorf(api.CodePoolNotFound, "%q names no pool; a name is 1 to 63 of a-z, 0-9, '-' and '_'", p.name)
	}
	query.Set("pool", p.name)
	path := "/v1/sessions" + rest + "?" + query.Encode()
	text, err := readAll(p.tryGateways(ctx, request{
		send: func(endpoint string) (*reply, error) {
			bounded, stop := context.WithTimeout(ctx, sessionTimeout)
			sent := header.Clone()
			if sent == nil {
				sent = http.Header{}
			}
			if body.kind != "" {
				sent.Set("Content-Type", body.kind)
			}
			response, err := p.client.transport.do(bounded, endpoint, method, path, sent, body.body())
			if err != nil {
				stop()
				return nil, err
			}
			return &reply{Response: response, ctx: bounded, stop: stop}, nil
		},
		retryElsewhere: func(err error) bool {
			switch api.CodeOf(err) {
			case api.CodeUnavailable:
				return method == http.MethodGet || !mayHaveStarted(err)
			case api.CodePoolNotFound, api.CodeNoWorkers: // on that host
				return true
			case api.CodeStoreUnavailable: // on that host; a change may have been stored all the same
				return method == http.MethodGet
			}
			return false
		},
		consumed: body.consumed,
	}))
	if err != nil || method == http.MethodDelete {
		return err
	}
	if err := json.Unmarshal(text, out); err != nil {
		return api.Errorf(api.CodeUnavailable, "what answered about sessions was no gateway of Tempool: %w", err)
	}
	return nil
}
