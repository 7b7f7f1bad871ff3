package mcp

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

const (
	// maxSubscribed bounds the subscriptions of a session, maxURI each, and maxURIs all of them together, in bytes.
	maxSubscribed = 1000
	maxURI        = 8 << 10
	maxURIs       = 128 << 10
)

// subscription is a resource that clients of shared processes want to hear of.
type subscription struct{ pool, uri string }

// subscribe answers a client of shared processes that subscribes to a resource, or no longer does: all processes of the
// pool here have each resource that a client has, also those that start later. The first asks one of them, which may
// refuse it.
func (e *Endpoint) subscribe(f *flight) (json.RawMessage, error) {
	s, method, uri := f.session, f.call.Method, uriOf(f.call.Body)
	if s.id == "" || s.mcp.Mode != spec.MCPShared {
		return nil, &failure{Code: codeMethod, Message: method + ` needs a session, of mcp.mode = "session" or "shared"`}
	}
	if uri == "" || len(uri) > maxURI {
		return nil, &failure{Code: codeParams, Message: fmt.Sprintf("params.uri is missing, or longer than %d bytes", maxURI)}
	}
	if method == methodSubscribe {
		if answer, err := result(e.config.Pool.CallPool(f.ctx, s.pool, f.call)); err != nil {
			return answer, err
		}
	}
	if err := e.changeSubscription(s, uri, method == methodSubscribe); err != nil {
		return nil, err
	}
	e.save(f.ctx, s)
	return json.RawMessage("{}"), nil
}

// changeSubscription notes a subscription of a session, or its end.
func (e *Endpoint) changeSubscription(s *session, uri string, subscribes bool) error {
	e.subscribing.Lock()
	defer e.subscribing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.subscribed[uri]
	switch {
	case s.ended:
		return errEnded
	case has == subscribes:
		return nil
	case !subscribes:
		delete(s.subscribed, uri)
		e.countLocked(s.pool, uri, -1)
		return nil
	case !s.subscribeLocked(uri):
		return &failure{Code: codeInternal, Message: fmt.Sprintf("the session may have %d subscriptions, of %d bytes "+
			"together; end some", maxSubscribed, maxURIs)}
	}
	e.countLocked(s.pool, uri, 1)
	return nil
}

// countSubscriptions counts those of a session that has come into memory, or, with -1, has ended. Those of a session
// with a process of its own are that one's.
func (e *Endpoint) countSubscriptions(s *session, n int) {
	if s.lone() {
		return
	}
	e.subscribing.Lock()
	defer e.subscribing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri := range s.subscribed {
		e.countLocked(s.pool, uri, n)
	}
	if n < 0 {
		clear(s.subscribed)
	}
}

// countLocked counts a subscription of a session, or its end, and tells the processes of the first and the last.
func (e *Endpoint) countLocked(pool, uri string, n int) {
	of := subscription{pool, uri}
	before := e.subscribers[of]
	e.subscribers[of] += n
	if e.subscribers[of] == 0 {
		delete(e.subscribers, of)
		e.tell(pool, methodUnsubscribe, uri)
	} else if before == 0 {
		e.tell(pool, methodSubscribe, uri)
	}
}

// tell sends a request to all processes of a pool that serve all clients with sessions. Their answers are dropped.
func (e *Endpoint) tell(pool, method, uri string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for conn, era := range e.conns[pool] {
		if era == spec.EraLegacy {
			wire.Listen(conn, e.ids.Add(1), method, uriParams(uri))
		}
	}
}

// subscribeLocked notes a subscription. It reports false if the session has too many.
func (s *session) subscribeLocked(uri string) bool {
	bytes := len(uri)
	for other := range s.subscribed {
		bytes += len(other)
	}
	if len(s.subscribed) >= maxSubscribed || bytes > maxURIs {
		return false
	}
	s.subscribed[uri] = struct{}{}
	return true
}

// uriOf is the URI in params, "" for none. Servers write the same one with other escapes.
func uriOf(params json.RawMessage) (uri string) {
	_ = json.Unmarshal(member(params, "uri"), &uri)
	return uri
}

func uriParams(uri string) json.RawMessage {
	text, _ := json.Marshal(uri) // a string never fails
	return slices.Concat([]byte(`{"uri":`), text, []byte{'}'})
}
