package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// The members of _meta by which the messages of revisions without sessions say what initialize said before.
const (
	metaPrefix       = "io.modelcontextprotocol/"
	metaVersion      = metaPrefix + "protocolVersion"
	metaCapabilities = metaPrefix + "clientCapabilities"
	metaLogLevel     = metaPrefix + "logLevel"
	metaSubscription = metaPrefix + "subscriptionId"
)

// modernVersions are the revisions of MCP without sessions that clients may speak.
var modernVersions = []string{"2026-07-28"}

var supportedVersions = json.RawMessage(`["2026-07-28"]`)

// removed are the methods that the revisions without sessions have no more.
var removed = append([]string{"initialize", "ping"}, sessionOnly...)

// isModern reports whether a client speaks a revision without sessions.
func isModern(h http.Header, m message) bool {
	return h.Get(headerVersion) >= modernVersions[0] || bytes.Contains(m.Params, []byte(`"`+metaVersion+`"`))
}

// modern answers a request of a client without a session.
func (e *Endpoint) modern(w http.ResponseWriter, r *http.Request, q Request, m message) error {
	switch {
	case m.Method == "":
		return &failure{http.StatusBadRequest, codeRequest, "this revision of MCP has no responses of clients", nil}
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted) // there is no notification that a server needs
		return nil
	}
	err := e.serveModern(w, r, q, m)
	if f, ok := err.(*failure); ok { // it is never wrapped
		writeJSON(w, f.status, response(m.ID, nil, f))
		return nil
	}
	return err
}

func (e *Endpoint) serveModern(w http.ResponseWriter, r *http.Request, q Request, m message) error {
	if e.speaks(spec.EraLegacy, q.Pool, q.Spec.MCP) {
		return legacyOnly(cmp.Or(r.Header.Get(headerVersion), modernVersions[0]))
	}
	if f := checkModern(r.Header, m); f != nil {
		return f
	}
	if slices.Contains(removed, m.Method) {
		return &failure{http.StatusNotFound, codeMethod, "this revision of MCP has no " + m.Method, nil}
	}
	greeting, era, err := e.greeting(r.Context(), q)
	switch {
	case err != nil:
		return err
	case era == spec.EraLegacy:
		return legacyOnly(cmp.Or(r.Header.Get(headerVersion), modernVersions[0]))
	case m.Method == "server/discover" && greeting != nil:
		writeJSON(w, http.StatusOK, response(m.ID, withMember(greeting, "supportedVersions", supportedVersions), nil))
		return nil
	case m.Method == "subscriptions/listen":
		return e.listen(w, r, q, m, greeting)
	}
	s := newSession("", q)
	s.modern = true
	if m.Method == "tools/call" {
		if err = e.checkParams(r.Context(), r.Header, q, s, m, greeting); err != nil {
			return err
		}
	}
	return e.request(w, r, q, s, m)
}

// legacyOnly and modernOnly are the answers to a client that speaks another era of MCP than the pool's servers.
func legacyOnly(requested string) *failure {
	return unlike("the server speaks MCP "+versions[0]+" to "+versions[len(versions)-1]+"; begin with initialize",
		versions, requested)
}

func modernOnly(requested string) *failure {
	return unlike("the server speaks MCP "+modernVersions[0]+", which has no initialize and no sessions. If it also "+
		"speaks an earlier revision, set mcp.era = \"legacy\" for the pool", modernVersions, requested)
}

func unlike(message string, supported []string, requested string) *failure {
	data, _ := json.Marshal(map[string]any{"supported": supported, "requested": requested})
	return &failure{http.StatusBadRequest, codeVersion, message, data}
}

// checkModern returns what is wrong with a request, nil for nothing. Its headers must say what its body does, since
// others may have decided by them.
func checkModern(h http.Header, m message) *failure {
	bad := func(code int, message string) *failure { return &failure{http.StatusBadRequest, code, message, nil} }
	meta := member(m.Params, "_meta")
	var version string
	if json.Unmarshal(member(meta, metaVersion), &version) != nil {
		return bad(codeParams, "_meta lacks "+metaVersion)
	}
	if h.Get(headerVersion) != version {
		return bad(codeHeader, "the header "+headerVersion+" is missing, or does not say what _meta does")
	}
	if !slices.Contains(modernVersions, version) {
		return unlike("unsupported protocol version", modernVersions, version)
	}
	if capabilities := member(meta, metaCapabilities); len(capabilities) == 0 || capabilities[0] != '{' {
		return bad(codeParams, "_meta lacks "+metaCapabilities)
	}
	if h.Get("Mcp-Method") != m.Method {
		return bad(codeHeader, "the header Mcp-Method is missing, or does not name the request's method")
	}
	source := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}[m.Method]
	if source == "" {
		return nil
	}
	var name string
	header, valid := decoded(h.Get("Mcp-Name"))
	if !valid {
		return bad(codeHeader, "the header Mcp-Name is neither plain ASCII nor base64")
	}
	if json.Unmarshal(member(m.Params, source), &name) == nil && (header != name || h.Values("Mcp-Name") == nil) {
		return bad(codeHeader, "the header Mcp-Name is missing, or does not say what "+source+" does")
	}
	return nil
}

// greeting is what a process of the pool has answered to our own handshake, and the era of the pool's servers. While
// there is no process here, the client waits for one. greeting is nil if the clients' own handshakes go to the
// processes.
func (e *Endpoint) greeting(ctx context.Context, q Request) (greeting json.RawMessage, era string, err error) {
	if era = q.Spec.MCPEra(); era == spec.EraLegacy && q.Spec.MCP.Mode == spec.MCPSession {
		return nil, era, nil
	}
	greeting, found := e.config.Pool.Greeting(q.Pool)
	if found == "" && !q.Spec.StartsForKey() {
		call := q.Call
		call.Method = "server/discover"
		if err = e.config.Pool.Await(ctx, q.Pool, call); err == nil {
			greeting, found = e.config.Pool.Greeting(q.Pool)
		}
		if err == nil && found == "" {
			err = api.Errorf(api.CodeUnavailable, "pool %s has no MCP server yet", q.Pool).After(tick)
		}
	}
	if found != "" {
		era = found
	}
	return greeting, era, err
}

// speaks reports whether the servers of the pool are of this era, as far as is known without a wait.
func (e *Endpoint) speaks(era, pool string, m spec.MCP) bool {
	if _, found := e.config.Pool.Greeting(pool); found != "" {
		return found == era
	}
	return m.Era == era
}

// callModern makes the call of a flight of a client without a session.
func (e *Endpoint) callModern(f *flight) (json.RawMessage, error) {
	if !bytes.Contains(f.call.Body, []byte(`"`+metaLogLevel+`"`)) {
		return result(e.config.Pool.CallPool(f.ctx, f.session.pool, f.call))
	}
	var answer *pool.Response
	f.call.Unbuffered = true // so that it is sent below
	_, err := e.config.Pool.Do(f.ctx, pool.AnyWorker(f.session.pool, "", f.call.Priority), f.call,
		func(c *pool.Call, r pool.Request) (err error) {
			p := process{c.Worker(), c.Incarnation()}
			e.mu.Lock()
			e.logged[p] = append(e.logged[p], f)
			e.mu.Unlock()
			answer, err = c.Exchange(r)
			e.mu.Lock() // the call may go to another process now
			if e.logged[p] = slices.DeleteFunc(e.logged[p], func(o *flight) bool { return o == f }); len(e.logged[p]) == 0 {
				delete(e.logged, p)
			}
			e.mu.Unlock()
			return err
		})
	return result(answer, err)
}

// passLog passes a message of a process's log on to the one request there that has asked for it: the message does not
// say whose it is.
func (e *Endpoint) passLog(p process, m wire.Incoming) {
	e.mu.Lock()
	asked := slices.Clone(e.logged[p])
	e.mu.Unlock()
	if len(asked) == 1 {
		asked[0].out.push(request(nil, m.Method, m.Params))
	}
}

// modernStatus is the HTTP status of an answer with an error.
func modernStatus(err error) int {
	switch failureOf(err).Code {
	case codeMethod:
		return http.StatusNotFound
	case codeParams, codeHeader, codeCapability, codeVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
