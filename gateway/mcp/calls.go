package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/spec"
)

const (
	// orphanTime is how long a request continues whose client has left: in the legacy revisions that does not cancel it,
	// and the client may come back for the answer.
	orphanTime = 2 * time.Minute
	// notifyTimeout bounds a notification.
	notifyTimeout = 30 * time.Second
	// attempts bounds how often a request goes to a new process because the one before has ended.
	attempts = 3
)

// flight is a request of a client in progress.
type flight struct {
	session *session
	id      json.RawMessage // the client's
	call    pool.Request
	token   json.RawMessage // the client's progress token; nil for none
	own     int64           // the token on the pipe
	out     *stream
	moves   bool // its session may continue at another host
	ctx     context.Context
	cancel  context.CancelFunc
}

// request has a process serve the client's request.
func (e *Endpoint) request(w http.ResponseWriter, r *http.Request, q Request, s *session, m message) error {
	if !s.lone() && m.Method == "ping" {
		writeJSON(w, http.StatusOK, response(m.ID, json.RawMessage("{}"), nil))
		return nil
	}
	f := &flight{session: s, id: m.ID, call: s.callOf(q, m.Method, m.Params), own: e.ids.Add(1),
		moves: s.isSaved() && s.call.Key == "" && q.Spec.Sessions.Store == spec.StoreRedis && q.Gone == "" && !q.again}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(r.Context()))
	out := s.stream(m.ID, r.Header, f.cancel)
	f.out = out.stream
	if !e.begin(f) {
		e.complete(f)
		return e.post(w, r, q) // it may be another host's by now
	}
	if !e.run(func() {
		defer context.AfterFunc(e.life, f.cancel)()
		result, err := e.answer(f, q.Spec.MCP)
		e.complete(f)
		if s.modern && err != nil {
			f.out.status = modernStatus(err)
		}
		if s.modern && m.Method == "tools/list" && err == nil {
			e.learnTools(toolsOf{s.pool, s.call.Key}, result)
		}
		if err != error(errEnded) || !f.out.void() {
			f.out.finish(response(f.id, result, err))
		}
	}) {
		e.complete(f)
		return pool.ErrClosing
	}
	err := reply(w, r, q, out)
	s.left(out)
	if err == errVoid {
		q.again = true
		return e.post(w, r, q)
	}
	return err
}

// callOf is a call for a client's request to any process of the pool that may serve it.
func (s *session) callOf(q Request, method string, params json.RawMessage) pool.Request {
	call := q.Call
	call.Method, call.Body = method, params
	if s.call.Key != "" {
		call.Key, call.Headers = s.call.Key, s.call.Headers
	}
	return call
}

// begin notes a flight, and gives it a progress token of its own if the client wants progress. It reports false if the
// session has ended, which cancels the flights that it has by then.
func (e *Endpoint) begin(f *flight) bool {
	if bytes.Contains(f.call.Body, []byte("progressToken")) {
		meta := member(f.call.Body, "_meta")
		if f.token = member(meta, "progressToken"); f.token != nil {
			meta = withMember(meta, "progressToken", strconv.AppendInt(nil, f.own, 10))
			f.call.Body = withMember(f.call.Body, "_meta", meta)
		}
	}
	e.mu.Lock()
	e.flights[f.own] = f
	e.mu.Unlock()
	s := f.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses, s.flights = s.uses+1, append(s.flights, f)
	return s.openLocked(f.out)
}

// complete ends a flight.
func (e *Endpoint) complete(f *flight) {
	f.cancel()
	e.mu.Lock()
	delete(e.flights, f.own)
	e.mu.Unlock()
	s := f.session
	s.mu.Lock()
	s.flights = slices.DeleteFunc(s.flights, func(o *flight) bool { return o == f })
	s.mu.Unlock()
	s.leave()
}

// answer makes the call of a flight with the tools alone that the pool's clients may use.
func (e *Endpoint) answer(f *flight, m spec.MCP) (json.RawMessage, error) {
	method := f.call.Method
	if method == "tools/call" && m.Filters() {
		for name, value := range members(f.call.Body) {
			var tool string
			// Some servers read names of members in any case, so each spelling counts.
			if strings.EqualFold(name, "name") && json.Unmarshal(value, &tool) == nil && !m.Serves(tool) {
				return nil, &failure{Code: codeParams, Message: fmt.Sprintf("unknown tool %.100q", tool)}
			}
		}
	}
	answer, err := e.call(f)
	if err == nil && method == "tools/list" && m.Filters() {
		answer = withTools(answer, m.Serves)
		if f.session.modern {
			answer = withMember(answer, "cacheScope", json.RawMessage(`"private"`))
		}
	}
	return answer, err
}

// withTools is a result of tools/list with only those tools that clients may use.
func withTools(result json.RawMessage, serves func(tool string) bool) json.RawMessage {
	var tools []json.RawMessage
	_ = json.Unmarshal(member(result, "tools"), &tools)
	tools = slices.DeleteFunc(tools, func(tool json.RawMessage) bool {
		var name string
		return json.Unmarshal(member(tool, "name"), &name) != nil || !serves(name)
	})
	text, _ := json.Marshal(append([]json.RawMessage{}, tools...)) // its parts are valid
	return withMember(result, "tools", text)
}

const (
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
)

// sessionOnly are the requests that concern what one client gets.
var sessionOnly = []string{"logging/setLevel", methodSubscribe, methodUnsubscribe}

// call makes the call of a flight and returns the server's result.
func (e *Endpoint) call(f *flight) (json.RawMessage, error) {
	s, method := f.session, f.call.Method
	if s.modern {
		return e.callModern(f)
	}
	if !s.lone() {
		if method == methodSubscribe || method == methodUnsubscribe {
			return e.subscribe(f)
		}
		if slices.Contains(sessionOnly, method) {
			return nil, &failure{Code: codeMethod, Message: method + ` needs a pool with mcp.mode = "session"`}
		}
		return result(e.config.Pool.CallPool(f.ctx, s.pool, f.call))
	}
	for attempt := 1; ; attempt++ {
		var how pool.CheckoutRequest
		if f.moves {
			how.Forward = func(ctx context.Context, to pool.Place) error { return e.give(ctx, f, to) }
		}
		id, _, err := e.acquire(f.ctx, s, how)
		if err == nil && id == "" {
			err = errEnded
		}
		if err != nil {
			return nil, err
		}
		if method == "tools/call" && s.told() {
			return json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"The process that served this session ` +
				`has ended, and what it held in memory is lost. A new one is ready: repeat what is needed."}]}`), nil
		}
		answer, err := result(e.config.Pool.Call(f.ctx, id, f.call))
		if err == nil && s.record(method, f.call.Body) {
			e.save(f.ctx, s)
		}
		if !isLost(err) {
			return answer, err
		}
		e.lost(s, id, method, err)
		if pool.Started(err) || attempt == attempts {
			return nil, err
		}
	}
}

func result(response *pool.Response, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// isLost reports whether an error says that the process of a session is gone.
func isLost(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeWorkerCrashed, api.CodeMemoryExceeded, api.CodeLeaseFenced, api.CodeLeaseNotFound,
		api.CodeWorkerNotFound:
		return true
	}
	return false
}

// lost notes that the process of a session is gone, as a request with the method has found out, if not "".
func (e *Endpoint) lost(s *session, id, method string, err error) {
	if e.unbind(s, id) {
		e.config.Logger.Info("the process of an MCP session has ended", "pool", s.pool, "lease", id, "error", err)
		s.mu.Lock()
		s.tell = s.mcp.AfterCrash == spec.CrashTell
		s.mu.Unlock()
	}
	if method == "tools/call" && pool.Started(err) {
		s.told() // by this error
	}
	if s.mcp.AfterCrash == spec.CrashEnd {
		e.endSession(s, "its process has ended (mcp.after_crash)")
	}
}

// told reports whether the client must be told that its process is a new one, once.
func (s *session) told() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	tell := s.tell
	s.tell = false
	return tell
}

// record notes what a new process must be told again, and reports whether the request was about that.
func (s *session) record(method string, params json.RawMessage) bool {
	if !slices.Contains(sessionOnly, method) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch uri := uriOf(params); {
	case method == "logging/setLevel" && len(params) <= maxURI:
		s.level = params
	case method == methodSubscribe && len(uri) <= maxURI:
		s.subscribeLocked(uri)
	case method == methodUnsubscribe:
		delete(s.subscribed, uri)
	}
	return true
}

// acquire returns the lease on the session's process. If it has none, it gets one, to which the client's handshake is
// sent again; greeting is what it has answered to initialize. The lease is "" if how.Forward had another host serve the
// client.
func (e *Endpoint) acquire(ctx context.Context, s *session,
	how pool.CheckoutRequest) (id string, greeting json.RawMessage, err error) {
	select {
	case s.acquiring <- struct{}{}:
		defer func() { <-s.acquiring }()
	case <-ctx.Done():
	}
	s.mu.Lock()
	id, ended := s.lease, s.ended
	s.mu.Unlock()
	switch {
	case ended:
		return "", nil, errEnded
	case id != "", ctx.Err() != nil:
		return id, nil, ctx.Err()
	}
	if e.speaks(spec.EraModern, s.pool, s.mcp) {
		return "", nil, modernOnly(versions[0])
	}
	how.Holder, how.Key, how.WaitMS = holderOf(s.id), s.call.Key, min(s.wait, pool.MaxCheckoutWait).Milliseconds()
	granted, err := e.config.Pool.Checkout(ctx, s.pool, how)
	if err != nil || granted == nil {
		return "", nil, err
	}
	if !e.bind(s, granted) {
		return "", nil, errEnded
	}
	if greeting, err = e.greet(ctx, s, granted.ID); err != nil && e.unbind(s, granted.ID) {
		e.run(func() { e.release(granted.ID) })
	} else if err == nil && s.isSaved() {
		e.run(func() { e.save(e.life, s) }) // with the new lease
	}
	return granted.ID, greeting, err
}

// greet sends the client's handshake, and what it has set since.
func (e *Endpoint) greet(ctx context.Context, s *session, id string) (json.RawMessage, error) {
	call := func(method string, params json.RawMessage) (json.RawMessage, error) {
		return result(e.config.Pool.Call(ctx, id, s.request(method, params)))
	}
	greeting, err := call("initialize", s.params)
	s.mu.Lock()
	initialized, level, subscribed := s.initialized, s.level, slices.Collect(maps.Keys(s.subscribed))
	s.mu.Unlock()
	if err != nil || !initialized {
		return greeting, err
	}
	e.mu.Lock()
	e.replays[s.pool]++
	e.mu.Unlock()
	if err = e.config.Pool.Notify(ctx, id, lease.Operator, s.request("notifications/initialized", nil)); err != nil {
		return nil, err
	}
	if level != nil {
		_, err = call("logging/setLevel", level)
	}
	for _, uri := range subscribed {
		if _, failed := call(methodSubscribe, uriParams(uri)); isLost(failed) {
			err = failed
		}
	}
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if capability := member(member(greeting, "capabilities"), kind); string(member(capability, "listChanged")) == "true" {
			s.deliver(request(nil, "notifications/"+kind+"/list_changed", nil), 0, true)
		}
	}
	if !isLost(err) {
		err = nil // a server that refuses what the one before took serves nevertheless
	}
	return greeting, err
}

// notify passes a notification of the client on.
func (e *Endpoint) notify(ctx context.Context, s *session, m message) {
	if m.Method == "notifications/cancelled" {
		id := member(m.Params, "requestId")
		s.mu.Lock()
		defer s.mu.Unlock()
		others := func(f *flight) bool { return !bytes.Equal(f.id, id) }
		if named := slices.DeleteFunc(slices.Clone(s.flights), others); len(named) == 1 { // else it is ambiguous
			named[0].cancel()
		}
		return
	}
	if !s.lone() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	if id, _, err := e.acquire(ctx, s, pool.CheckoutRequest{}); err == nil {
		err = e.config.Pool.Notify(ctx, id, lease.Operator, s.request(m.Method, m.Params))
		if isLost(err) {
			e.lost(s, id, "", err)
		}
	}
	if m.Method == "notifications/initialized" {
		s.mu.Lock()
		s.initialized = true
		s.mu.Unlock()
		e.save(ctx, s)
	}
}
