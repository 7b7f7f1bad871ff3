// Package mcp serves pools of MCP servers to MCP clients, by streamable HTTP: of the legacy revisions, with initialize,
// and of the modern ones, without sessions.
//
// In modes shared and request, the requests of all clients are calls of the pool, and so are those of modern clients in
// any mode. In mode session, each legacy client has a lease on a process of its own, with which the server's requests
// and notifications reach it.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

// Headers of MCP.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
)

// tick is the interval at which sessions are checked.
const tick = time.Second

// maxFirstID bounds the id from which an Endpoint counts: as many more fit in 31 bits. It is random, since a client or
// a process may still use an id of another agent, which had the session or the process before.
const maxFirstID = 1 << 30

// Config configures an Endpoint. All fields are required.
type Config struct {
	HostID string
	Pool   *pool.Dispatcher
	// Store is the session store of a pool.
	Store func(ctx context.Context, pool string) (sessions.Store, error)
	// Peer finds the gateway of a host that has workers of the pool; one without an endpoint says that the host is gone,
	// or unless it must be sure, that it was gone a moment ago.
	Peer   func(ctx context.Context, pool, host string, sure bool) (api.Peer, error)
	Events *events.Log
	// Life ends when the gateway takes no further request. Streams that answer no request end with it.
	Life   context.Context
	Logger *slog.Logger
}

// Endpoint serves /mcp/{pool}. All methods are safe for concurrent use.
type Endpoint struct {
	config Config
	ids    atomic.Int64 // of the requests of servers, and of progress tokens
	kept   atomic.Int64 // bytes that sessions keep
	life   context.Context
	end    context.CancelFunc
	work   sync.WaitGroup

	subscribing sync.Mutex // taken before mu and a session's mu
	subscribers map[subscription]int

	mu        sync.Mutex
	closed    bool
	sessions  map[string]*session
	ending    map[string]struct{}              // ids of sessions that have just ended, and may have a record
	replays   map[string]int64                 // by pool, of all that have had a client
	parked    map[string][]parked              // idle sessions that have a record, by pool
	processes map[process]*session             // mode session
	flights   map[int64]*flight                // by the progress token on the pipe
	logged    map[process][]*flight            // those there that have asked for its log
	pending   map[any]struct{}                 // a change or heard, which clients are about to be told
	tools     map[toolsOf]tools                // of modern processes
	listeners map[string]*listener             // by the id of their subscriptions on the pipes
	conns     map[string]map[*wire.Conn]string // of processes that serve all clients, by pool: their era
}

// process is an incarnation of a worker.
type process struct {
	worker      string
	incarnation int64
}

// New returns an Endpoint, which must be closed.
func New(config Config) *Endpoint {
	e := &Endpoint{config: config, sessions: map[string]*session{}, ending: map[string]struct{}{},
		replays: map[string]int64{}, parked: map[string][]parked{},
		processes: map[process]*session{}, flights: map[int64]*flight{}, logged: map[process][]*flight{},
		pending: map[any]struct{}{}, tools: map[toolsOf]tools{}, listeners: map[string]*listener{},
		conns: map[string]map[*wire.Conn]string{}, subscribers: map[subscription]int{}}
	e.life, e.end = context.WithCancel(context.Background())
	e.ids.Store(rand.Int64N(maxFirstID))
	return e
}

// Start begins to check the sessions, until Close: requests may be in progress after the end of Life.
func (e *Endpoint) Start() {
	e.work.Go(func() {
		for range sleep.Ticks(e.life.Done(), tick) {
			e.Check(time.Now())
		}
	})
}

// Check ends or parks the sessions that are idle at a time, and does what else is due for them then.
func (e *Endpoint) Check(now time.Time) {
	for _, s := range e.all() {
		e.check(s, now)
	}
}

// Close cancels what is in progress. The processes of sessions are left to the end of their agent, or to the next one,
// which renews a session's lease only once its client has returned. Until ctx ends they are renewed for that time.
func (e *Endpoint) Close(ctx context.Context) {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end()
	e.work.Wait()
	if !e.config.Pool.Health().ControlPlane {
		return
	}
	for _, s := range e.all() {
		s.mu.Lock()
		if id := s.lease; id != "" && !s.savedAt.IsZero() {
			e.work.Go(func() { e.extend(ctx, id, s.absent) })
		}
		s.mu.Unlock()
	}
	e.work.Wait()
}

// Counts are those of the clients of a pool at this gateway.
type Counts struct {
	Sessions int   // whose clients are there
	Streams  int   // of them that are open for what the server sends
	Replays  int64 // new processes that have continued a session
}

// Counts returns the counts of each pool that has had a client.
func (e *Endpoint) Counts() map[string]Counts {
	counts := map[string]Counts{}
	count := func(pool string, sessions, streams int) {
		c := counts[pool]
		c.Sessions, c.Streams = c.Sessions+sessions, c.Streams+streams
		counts[pool] = c
	}
	e.mu.Lock()
	for pool, n := range e.replays {
		counts[pool] = Counts{Replays: n}
	}
	for _, l := range e.listeners {
		count(l.pool, 0, 1)
	}
	e.mu.Unlock()
	for _, s := range e.all() {
		count(s.pool, 1, 0)
		s.mu.Lock()
		if s.getLocked() != nil {
			count(s.pool, 0, 1)
		}
		s.mu.Unlock()
	}
	return counts
}

// ClientOf is the client whose session has the process; nil for none.
func (e *Endpoint) ClientOf(worker string, incarnation int64) *api.MCPClient {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.processes[process{worker, incarnation}]
	if s == nil {
		return nil
	}
	return &api.MCPClient{Principal: s.principal, Since: s.begun}
}

// run runs f on a goroutine that Close waits for. It reports false once the Endpoint is closed.
func (e *Endpoint) run(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.work.Go(f)
	}
	return !e.closed
}

func (e *Endpoint) all() []*session {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*session, 0, len(e.sessions))
	for _, s := range e.sessions {
		all = append(all, s)
	}
	return all
}

// Request is a request to the endpoint of a pool.
type Request struct {
	Pool string
	Spec spec.Spec
	// Principal is the client. Another one's sessions do not exist for it.
	Principal string
	Body      []byte
	// Call has what the calls for the request have in common: Headers, Trace, Client, Priority.
	Call pool.Request
	// Here says that the request is not to go to another host: it has come from one.
	Here bool
	// Gone is a host that does not answer, whose session another one continues; "" for none.
	Gone string
	// Forward and Guest are those of the checkout for a session.
	Forward func(ctx context.Context, to pool.Place) error
	Guest   *pool.Guest
	// Hold counts an answer of so many bytes, which replaces the one before, and fails if there is no memory for it.
	Hold func(int64) error

	again bool // it was given up here for another host, and stays if it is back
}

// Fail answers a request of a session that was lost at another host as one that was lost with its process: clients give
// up after an HTTP error. It returns err, which may be nil, for other messages.
func (q Request) Fail(w http.ResponseWriter, err error) error {
	m, invalid := parse(q.Body)
	if err == nil || invalid != nil || m.ID == nil || m.Method == "" {
		return err
	}
	writeJSON(w, http.StatusOK, response(m.ID, nil, err))
	return nil
}

// Serve answers a GET, POST or DELETE. It returns an error, which is coded, only if it has not answered.
func (e *Endpoint) Serve(w http.ResponseWriter, r *http.Request, q Request) error {
	err := e.serve(w, r, q)
	if f, ok := err.(*failure); ok { // it is never wrapped, and concerns no request
		writeJSON(w, f.status, response(json.RawMessage("null"), nil, f))
		return nil
	}
	return err
}

func (e *Endpoint) serve(w http.ResponseWriter, r *http.Request, q Request) error {
	if r.Method != http.MethodPost && r.Header.Get(headerSession) == "" && (isModern(r.Header, message{}) ||
		r.Method == http.MethodGet && q.Spec.MCP.Mode != spec.MCPSession ||
		e.speaks(spec.EraModern, q.Pool, q.Spec.MCP)) {
		w.Header().Set("Allow", http.MethodPost)
		return &failure{http.StatusMethodNotAllowed, codeRequest, "a client without a session has no stream", nil}
	}
	switch r.Method {
	case http.MethodGet:
		return e.get(w, r, q)
	case http.MethodDelete:
		s, err := e.sessionOf(r, q)
		if err != nil {
			return err
		}
		defer s.leave()
		e.endSession(s, "the client has ended it")
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return e.post(w, r, q)
}

func (e *Endpoint) post(w http.ResponseWriter, r *http.Request, q Request) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != typeJSON {
		return &failure{http.StatusUnsupportedMediaType, codeRequest, "the Content-Type must be " + typeJSON, nil}
	}
	if !accepts(r.Header, typeJSON) && !accepts(r.Header, typeSSE) {
		return &failure{http.StatusNotAcceptable, codeRequest, "Accept must have " + typeJSON + " and " + typeSSE, nil}
	}
	m, err := parse(q.Body)
	if err != nil {
		return err
	}
	if isModern(r.Header, m) {
		return e.modern(w, r, q, m)
	}
	version := r.Header.Get(headerVersion)
	if version != "" && m.Method != "initialize" && !slices.Contains(versions, version) {
		return &failure{http.StatusBadRequest, codeRequest, headerVersion + " names no revision of MCP", nil}
	}
	if m.Method == "initialize" && m.ID != nil {
		return e.initialize(w, r, q, m)
	}
	s, err := e.sessionOf(r, q)
	if err != nil {
		return err
	}
	defer s.leave()
	switch {
	case m.Method == "":
		if !s.answer(m) {
			return &failure{http.StatusBadRequest, codeRequest, "the server has asked nothing with this id", nil}
		}
	case m.ID == nil:
		e.notify(r.Context(), s, m)
		if !s.enter() { // it may be another host's by now, whose process has not heard of it
			return e.post(w, r, q)
		}
		s.leave()
	default:
		return e.request(w, r, q, s, m)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// get streams what the server sends that belongs to no request, or resumes a stream.
func (e *Endpoint) get(w http.ResponseWriter, r *http.Request, q Request) error {
	if !accepts(r.Header, typeSSE) {
		return &failure{http.StatusNotAcceptable, codeRequest, "Accept must have " + typeSSE, nil}
	}
	s, err := e.sessionOf(r, q)
	if err != nil {
		return err
	}
	defer s.leave()
	var out *reader
	if last := r.Header.Get("Last-Event-ID"); last == "" {
		out = s.stream(nil, r.Header, nil)
		s.mu.Lock()
		s.openLocked(out.stream)
		s.mu.Unlock()
	} else if out, err = s.resume(last, r.Header); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if out.isGet {
		defer context.AfterFunc(e.config.Life, cancel)()
	}
	err = out.send(ctx, w, q.Spec.MCP.KeepAlive.D(), q.Hold)
	s.left(out)
	return err
}

// initialize begins a session.
func (e *Endpoint) initialize(w http.ResponseWriter, r *http.Request, q Request, m message) error {
	greeting, era, err := e.greeting(r.Context(), q)
	if err != nil {
		return err
	}
	if era == spec.EraModern {
		var asked string
		_ = json.Unmarshal(member(m.Params, "protocolVersion"), &asked)
		refusal := modernOnly(asked)
		writeJSON(w, refusal.status, response(m.ID, nil, refusal))
		return nil
	}
	if len(m.Params) > maxParams {
		return &failure{http.StatusBadRequest, codeParams, fmt.Sprintf("the params of initialize have more than %d bytes",
			maxParams), nil}
	}
	s := newSession(e.config.HostID, q)
	s.params = m.Params
	if _, err = e.add(s); err != nil {
		return err
	}
	s.enter()
	defer s.leave()
	var result []byte
	if s.mcp.Mode == spec.MCPSession {
		how := pool.CheckoutRequest{Guest: q.Guest}
		if s.call.Key == "" { // else its files are here
			how.Forward = q.Forward
		}
		var id string
		if id, result, err = e.acquire(r.Context(), s, how); id == "" && err == nil {
			e.endSession(s, "another host has begun it")
			return nil
		}
	} else {
		result = sharedResult(greeting, m.Params, s.mcp.Mode)
	}
	if err != nil {
		e.endSession(s, "initialize has failed")
		if api.CodeOf(err) != api.CodeWorkerError && api.CodeOf(err) != api.CodeMethodNotFound {
			return err
		}
	} else if w.Header().Set(headerSession, s.id); r.Context().Err() != nil {
		e.endSession(s, "the client has left before it began")
	} else {
		e.save(r.Context(), s)
	}
	out := newStream()
	out.finish(response(m.ID, result, err))
	return reply(w, r, q, out)
}

// reply writes the messages for a POST: as JSON if the answer comes first and soon, else as events.
func reply(w http.ResponseWriter, r *http.Request, q Request, out *reader) error {
	mayStream, ctx := !out.plain, r.Context()
	late := time.NewTimer(q.Spec.MCP.SSEAfter.D())
	defer late.Stop()
	for stream := !accepts(r.Header, typeJSON); ; {
		unread, last, closed := out.unread()
		switch {
		case stream, mayStream && (unread > 1 || unread > 0 && !closed):
			return out.send(ctx, w, q.Spec.MCP.KeepAlive.D(), q.Hold)
		case closed:
			if unread == 0 { // it is void, or another connection has resumed it
				_, err := out.begin()
				return cmp.Or(err, error(errEnded))
			}
			if err := q.Hold(int64(len(last))); err != nil { // a client that takes no events misses the others
				return err
			}
			writeJSON(w, cmp.Or(out.status, http.StatusOK), last)
			return nil
		}
		select {
		case <-out.wake:
		case <-late.C:
			stream = mayStream
		case <-ctx.Done():
			return nil
		}
	}
}
