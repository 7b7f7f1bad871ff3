package mcp

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// mergeWithin is the time in which equal announcements of a pool's processes are one. The client gets it at the end.
const mergeWithin = 250 * time.Millisecond

// change is an announcement to all clients of a pool; that of a resource, which has params, to those that have
// subscribed to it.
type change struct{ pool, method, params string }

// Receive gets what the MCP server of a process sends that answers no call. It does not block, and reports whether it
// takes a request.
func (e *Endpoint) Receive(pool, worker string, incarnation int64, m wire.Incoming) bool {
	e.mu.Lock()
	s := e.processes[process{worker, incarnation}]
	e.mu.Unlock()
	switch {
	case m.Method == "notifications/progress":
		e.passProgress(pool, s, m)
	case m.ID == nil && e.passHeard(pool, m):
	case s == nil && m.Method == "notifications/message":
		e.passLog(process{worker, incarnation}, m)
	case s != nil:
		return s.receive(e.ids.Add(1), m)
	case m.ID == nil && strings.HasSuffix(m.Method, "/list_changed"):
		e.announce(change{pool, m.Method, ""})
	case m.ID == nil && m.Method == "notifications/resources/updated":
		e.announce(change{pool, m.Method, string(m.Params)})
	}
	return false
}

// passProgress passes progress on to the request that wants it: of the session s, or of any client of a shared process.
func (e *Endpoint) passProgress(pool string, s *session, m wire.Incoming) {
	own, err := strconv.ParseInt(string(member(m.Params, "progressToken")), 10, 64)
	e.mu.Lock()
	f := e.flights[own]
	e.mu.Unlock()
	if err != nil || f == nil || f.token == nil || f.session.pool != pool || f.session.lone() && f.session != s {
		return
	}
	f.out.push(request(nil, m.Method, withMember(m.Params, "progressToken", f.token)))
}

// receive passes a message of the session's process on to the client; own is the id that a request gets.
func (s *session) receive(own int64, m wire.Incoming) bool {
	switch {
	case m.Method == "ping":
		return false // the host answers it
	case m.ID != nil:
		s.mu.Lock()
		full := len(s.asked) >= maxAsked
		if !full {
			s.asked[own] = m
		}
		s.mu.Unlock()
		id := strconv.AppendInt(nil, own, 10)
		if full || !s.deliver(request(id, m.Method, m.Params), own, false) {
			s.mu.Lock()
			delete(s.asked, own)
			s.mu.Unlock()
			refuse(m, "the client has no stream for it, or leaves too many requests unanswered")
		}
		return true
	case m.Method == "notifications/cancelled":
		s.cancelled(m)
		return false
	}
	changed := strings.HasSuffix(m.Method, "/list_changed") || m.Method == "notifications/resources/updated"
	s.deliver(request(nil, m.Method, m.Params), 0, changed)
	return false
}

// cancelled passes the server's cancel of a request of its own on.
func (s *session) cancelled(m wire.Incoming) {
	asked := string(member(m.Params, "requestId"))
	s.mu.Lock()
	own := int64(0)
	for id, request := range s.asked {
		if string(request.ID) == asked {
			own = id
		}
	}
	delete(s.asked, own)
	s.mu.Unlock()
	if own != 0 {
		id := strconv.AppendInt(nil, own, 10)
		s.deliver(request(nil, m.Method, withMember(m.Params, "requestId", id)), 0, false)
	}
}

// announce sends a notification to the streams of clients of shared processes, a moment later.
func (e *Endpoint) announce(c change) {
	e.soon(c, func() {
		params := json.RawMessage(c.params)
		uri := uriOf(params)
		for _, s := range e.all() {
			s.mu.Lock()
			_, subscribed := s.subscribed[uri]
			get := s.getLocked()
			if s.pool == c.pool && s.mcp.Mode != spec.MCPSession && get != nil && (c.params == "" || subscribed) {
				get.push(request(nil, c.method, params))
			}
			s.mu.Unlock()
		}
	})
}

// soon does something in mergeWithin, once for all that have the same key until then.
func (e *Endpoint) soon(key any, do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, waits := e.pending[key]; waits {
		return
	}
	e.pending[key] = struct{}{}
	time.AfterFunc(mergeWithin, func() {
		e.mu.Lock()
		delete(e.pending, key)
		e.mu.Unlock()
		do()
	})
}

// refuse answers a server's request that no client can.
func refuse(m wire.Incoming, why string) {
	text, _ := json.Marshal(&failure{Code: codeInternal, Message: why})
	m.Answer(nil, text)
}
