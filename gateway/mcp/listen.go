package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// listener is a client that listens to all processes of a pool on this host.
type listener struct {
	number int64           // of its subscription on the pipes
	id     json.RawMessage // and the client's
	pool   string
	client string // its principal
	params json.RawMessage
	out    *reader
	stops  map[*wire.Conn]func() // guarded by the Endpoint's lock
}

// heard is a notification to a listener.
type heard struct {
	by   *listener
	text string
}

// listen answers subscriptions/listen, until the client leaves or the gateway does. greeting is what the server offers.
func (e *Endpoint) listen(w http.ResponseWriter, r *http.Request, q Request, m message,
	greeting json.RawMessage) error {
	if !accepts(r.Header, typeSSE) {
		return &failure{http.StatusNotAcceptable, codeRequest, "Accept must have " + typeSSE, nil}
	}
	l := &listener{number: e.ids.Add(1), id: m.ID, pool: q.Pool, client: q.Principal, params: m.Params, out: newStream(),
		stops: map[*wire.Conn]func(){}}
	taken := json.RawMessage("{}") // what is one client's, or one request's, tells others nothing
	if q.Spec.IsolatedBy() == spec.IsolateNone {
		taken = offered(member(m.Params, "notifications"), member(greeting, "capabilities"))
	}
	l.out.push(l.tagged("notifications/subscriptions/acknowledged",
		withMember(json.RawMessage("{}"), "notifications", taken)))
	if err := e.addListener(l, q.Spec.MCP); err != nil {
		return err
	}
	defer e.removeListener(l)
	complete := withMember(json.RawMessage(`{"resultType":"complete"}`), "_meta", l.meta(nil))
	defer context.AfterFunc(e.config.Life, func() { l.out.finish(response(l.id, complete, nil)) })()
	return l.out.send(r.Context(), w, q.Spec.MCP.KeepAlive.D(), q.Hold)
}

// offered are the notifications of a filter that a server with these capabilities sends.
func offered(filter, capabilities json.RawMessage) json.RawMessage {
	for name, offer := range map[string][2]string{
		"toolsListChanged": {"tools", "listChanged"}, "promptsListChanged": {"prompts", "listChanged"},
		"resourcesListChanged": {"resources", "listChanged"}, "resourceSubscriptions": {"resources", "subscribe"},
	} {
		if string(member(member(capabilities, offer[0]), offer[1])) != "true" {
			filter = withMember(filter, name, nil)
		}
	}
	if len(filter) == 0 {
		filter = json.RawMessage("{}")
	}
	return filter
}

// addListener has the processes of the pool tell the listener, unless the pool or its client has most listeners.
func (e *Endpoint) addListener(l *listener, limits spec.MCP) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	where := func(other *listener) (pool, principal string) { return other.pool, other.client }
	if err := full(e.listeners, where, l, limits, "streams of subscriptions/listen"); err != nil {
		return err
	}
	e.replays[l.pool] += 0 // as of a session
	e.listeners[wire.Listener(l.number)] = l
	for conn, era := range e.conns[l.pool] {
		if era == spec.EraModern {
			l.stops[conn] = wire.Listen(conn, l.number, "subscriptions/listen", l.params)
		}
	}
	return nil
}

func (e *Endpoint) removeListener(l *listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.listeners, wire.Listener(l.number))
	for _, stop := range l.stops {
		stop()
	}
}

// Connect gets the connection to a process of a pool that serves all clients, and which era of MCP it speaks.
func (e *Endpoint) Connect(pool string, conn *wire.Conn, era string) {
	e.subscribing.Lock()
	defer e.subscribing.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conns[pool] == nil {
		e.conns[pool] = map[*wire.Conn]string{}
	}
	e.conns[pool][conn] = era
	for of := range e.subscribers {
		if of.pool == pool && era == spec.EraLegacy {
			wire.Listen(conn, e.ids.Add(1), methodSubscribe, uriParams(of.uri))
		}
	}
	for _, l := range e.listeners {
		if l.pool == pool && era == spec.EraModern {
			l.stops[conn] = wire.Listen(conn, l.number, "subscriptions/listen", l.params)
		}
	}
	wire.AfterDone(conn, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if delete(e.conns[pool], conn); len(e.conns[pool]) == 0 {
			delete(e.conns, pool)
		}
		for _, l := range e.listeners {
			delete(l.stops, conn)
		}
	})
}

// passHeard passes a notification on to the listener that it names, a moment later, and reports whether it names one.
func (e *Endpoint) passHeard(pool string, m wire.Incoming) bool {
	if !bytes.Contains(m.Params, []byte(`"`+metaSubscription+`"`)) {
		return false
	}
	e.mu.Lock()
	l := e.listeners[string(member(member(m.Params, "_meta"), metaSubscription))]
	e.mu.Unlock()
	if m.Method == "notifications/tools/list_changed" {
		e.forgetTools(pool)
	}
	if l != nil && l.pool == pool && m.Method != "notifications/subscriptions/acknowledged" {
		notification := l.tagged(m.Method, m.Params)
		e.soon(heard{l, string(notification)}, func() {
			if !l.out.push(notification) {
				l.out.finish(nil) // the client, which reads too slowly, must listen again
			}
		})
	}
	return true
}

// tagged encodes a notification with the client's id of the subscription.
func (l *listener) tagged(method string, params json.RawMessage) []byte {
	return request(nil, method, withMember(params, "_meta", l.meta(member(params, "_meta"))))
}

// meta is the member _meta of what the listener gets.
func (l *listener) meta(given json.RawMessage) json.RawMessage {
	if given == nil {
		given = json.RawMessage("{}")
	}
	return withMember(given, metaSubscription, l.id)
}
