package mcp

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// subscribe answers a client of shared processes that subscribes to a resource, or no longer does: all processes of the
// pool here have each resource that a client has, also those that start later. The first asks one of them, which may
// refuse it.
func (e *Endpoint) subscribe(f *flight) (json.RawMessage, error) {
	s, method := f.session, f.call.Method
	if s.id == "" || s.mcp.Mode != spec.MCPShared {
		return nil, &failure{Code: codeMethod, Message: method + ` needs a session, of mcp.mode = "session" or "shared"`}
	}
	if method == methodSubscribe {
		if n := len(s.subscriptions()); n >= maxSubscribed {
			return nil, &failure{Code: codeInternal, Message: fmt.Sprintf("the session has %d subscriptions, the maximum", n)}
		}
		if answer, err := result(e.config.Pool.CallPool(f.ctx, s.pool, f.call)); err != nil {
			return answer, err
		}
	}
	if !e.changeSubscription(s, method, f.call.Body) {
		return nil, errEnded
	}
	e.save(f.ctx, s)
	return json.RawMessage("{}"), nil
}

// changeSubscription notes a subscription of a session, or its end, and tells the processes. It reports false if the
// session has ended.
func (e *Endpoint) changeSubscription(s *session, method string, params json.RawMessage) bool {
	e.subscribing.Lock()
	defer e.subscribing.Unlock()
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	switch s.record(method, params); {
	case ended:
	case method == methodSubscribe:
		e.tell(s.pool, method, params)
	default:
		e.unsubscribeLocked(s.pool, string(member(params, "uri")), params)
	}
	return !ended
}

// subscriptions are the params of resources/subscribe, by URI.
func (s *session) subscriptions() map[string]json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.subscribed)
}

// unsubscribe takes the resources of a session that has ended from the processes of its pool.
func (e *Endpoint) unsubscribe(pool string, subscribed map[string]json.RawMessage) {
	e.subscribing.Lock()
	defer e.subscribing.Unlock()
	for uri, params := range subscribed {
		e.unsubscribeLocked(pool, uri, params)
	}
}

// unsubscribeLocked takes a resource from the processes of a pool, unless a client still has it.
func (e *Endpoint) unsubscribeLocked(pool, uri string, params json.RawMessage) {
	for _, s := range e.all() {
		if _, has := s.subscriptions()[uri]; has && s.pool == pool {
			return
		}
	}
	e.tell(pool, methodUnsubscribe, params)
}

// tell sends a request to all processes of a pool that serve all clients. Their answers are dropped.
func (e *Endpoint) tell(pool, method string, params json.RawMessage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for conn := range e.conns[pool] {
		wire.Listen(conn, e.ids.Add(1), method, params)
	}
}
