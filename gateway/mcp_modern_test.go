package gateway

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// modernServer is an MCP server of 2026-07-28, with any argument a legacy one. Its tools tell its PID, wait until they
// are cancelled or freed, make progress with a log, fail, ask the client something, and change the list of tools.
// Without _meta the modern one exits.
const modernServer = `
import json, os, sys
subscriptions, held, uris, answers = [], [], [], []
prefix = "io.modelcontextprotocol/"
def send(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    m = json.loads(line)
    if "method" not in m: answers.append(m.get("result")); continue
    method, p, id = m["method"], m.get("params", {}), m.get("id")
    if method == "initialize":
        send(id=id, result={"protocolVersion": "2025-11-25", "capabilities": {"logging": {}, "tools": {},
            "resources": {"subscribe": True}},
            "serverInfo": {"name": "both", "version": "1"}})
        continue
    if method == "ping" and len(sys.argv) > 1: send(id=id, result={}); continue
    if method == "server/discover":
        if len(sys.argv) > 1: send(id=id, error={"code": -32601, "message": "not here"}); continue
        send(id=id, result={"resultType": "complete", "supportedVersions": ["2026-07-28", "2025-11-25"],
            "capabilities": {"tools": {"listChanged": True}}})
        continue
    if "_meta" not in p and len(sys.argv) == 1: sys.exit(1)
    if method == "subscriptions/listen": subscriptions.append(id)
    if method == "notifications/cancelled":
        held = [h for h in held if h != p["requestId"]]
        subscriptions = [s for s in subscriptions if s != p["requestId"]]
    if method == "resources/subscribe": uris = [u for u in uris if u != p["uri"]] + [p["uri"]]
    if method == "resources/unsubscribe": uris.remove(p["uri"])
    if method.startswith("resources/"): send(id=id, result={}); continue
    if id is None or method == "subscriptions/listen": continue
    tool = p.get("name")
    if tool == "hold": held.append(id); continue
    if tool == "free":
        for h in held: send(id=h, result={"freed": h})
        held = []
    if tool == "ask": send(id="roots", method="roots/list")
    if tool == "announce": send(method="notifications/tools/list_changed")
    if tool == "large": send(method="notifications/message", params={"data": "x" * 100000})
    if tool == "steps":
        send(method="notifications/message", params={"level": "info", "data": "a line"})
        token = p["_meta"]["progressToken"]
        for n in 1, 2: send(method="notifications/progress", params={"progressToken": token, "progress": n})
    if tool == "change":
        for s in subscriptions:
            send(method="notifications/tools/list_changed", params={"_meta": {prefix + "subscriptionId": s}})
    if tool == "update":
        for u in uris: send(method="notifications/resources/updated", params={"uri": u})
    if tool == "none": send(id=id, error={"code": -32602, "message": "no such tool"}); continue
    if method == "tools/list":
        note = {"type": "integer", "x-mcp-header": "Note"}
        send(id=id, result={"resultType": "complete", "tools": [{"name": "note", "inputSchema": {"type": "object",
            "properties": {"in": {"type": "object", "properties": {"note": note}}}}}]})
        continue
    if method != "tools/call": send(id=id, error={"code": -32601, "message": "no such method"}); continue
    send(id=id, result={"resultType": "complete", "pid": os.getpid(), "held": len(held), "listen": len(subscriptions),
        "answers": answers, "uris": len(uris)})
`

func openModern(t *testing.T, workers int, mode string, options ...option) *env {
	t.Parallel()
	return open(t, workers, append([]option{withModern(t, mode)}, options...)...)
}

func withModern(t *testing.T, mode string) option {
	return withSpec(func(sp *spec.Spec) {
		sp.Pool.Command, sp.Pool.Protocol = []string{"python3", "-c", modernServer}, spec.ProtocolJSONRPC
		sp.MCP.Mode, sp.Pool.MaxInflight = mode, 16
		if mode == spec.MCPRequest {
			sp.Pool.MaxInflight = 1
		}
		require.NoError(t, sp.Validate())
	})
}

// modernBody is a request of a client without a session, with the id 1.
func modernBody(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"_meta":{"progressToken":"t",` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}` + params + `}}`
}

func modernHeaders(method, name string) []string {
	return []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name}
}

// tool calls a tool as a client without a session does, with further members of _meta.
func (e *env) tool(name string, meta ...string) answer {
	e.t.Helper()
	body := modernBody("tools/call", `,"name":"`+name+`"`)
	for _, m := range meta {
		body = strings.Replace(body, `"_meta":{`, `"_meta":{`+m+`,`, 1)
	}
	return e.mcp("POST", body, modernHeaders("tools/call", name)...)
}

func TestWhatTheEndpointOfMCPRefusesToClientsWithoutSessions(t *testing.T) {
	e := openModern(t, 1, spec.MCPShared)
	call, headers := modernBody("tools/call", `,"name":"pid"`), modernHeaders("tools/call", "pid")
	with := func(name, value string) []string { return append(append([]string{}, headers...), name, value) }
	without := func(text string) string { return strings.Replace(call, text, `"x":`, 1) }
	note := modernBody("tools/call", `,"name":"note","arguments":{"in":{"note":7}}`)
	noted := func(value string) []string { return append(with("Mcp-Name", "note"), "Mcp-Param-Note", value) }
	empty := strings.Replace(note, `"note":7`, `"note":null`, 1)
	for name, c := range map[string]struct {
		method, body string
		headers      []string
		status       int
		holds        string
	}{
		"a call": {"POST", call, headers, 200, `"id":1,"result":{"resultType": "complete"`},
		"no version": {"POST", without(`"io.modelcontextprotocol/protocolVersion":`), headers, 400,
			`"id":1,"error":{"code":-32602`},
		"no capabilities": {"POST", without(`"io.modelcontextprotocol/clientCapabilities":`), headers, 400, "-32602"},
		"no header":       {"POST", call, headers[2:], 400, "-32020"},
		"another version": {"POST", call, with("Mcp-Protocol-Version", "2027-01-01"), 400, "-32020"},
		"an unknown version": {"POST", strings.Replace(call, "2026-07-28", "2027-01-01", 1),
			with("Mcp-Protocol-Version", "2027-01-01"), 400, `"supported":["2026-07-28"]`},
		"another method":           {"POST", call, with("Mcp-Method", "tools/list"), 400, "-32020"},
		"another name":             {"POST", call, with("Mcp-Name", "hold"), 400, "-32020"},
		"no name":                  {"POST", call, headers[:4], 400, "-32020"},
		"a name in base64":         {"POST", call, with("Mcp-Name", "=?base64?cGlk?="), 200, "result"},
		"no base64":                {"POST", call, with("Mcp-Name", "=?base64?%?="), 400, "-32020"},
		"an old method":            {"POST", modernBody("ping", ""), modernHeaders("ping", ""), 404, "-32601"},
		"an unknown method":        {"POST", modernBody("x/y", ""), modernHeaders("x/y", ""), 404, `"id":1,"error":{"code":-32601`},
		"an argument":              {"POST", note, noted("7"), 200, "result"},
		"an argument in base64":    {"POST", note, noted("=?base64?Ny4w?="), 200, "result"},
		"an argument in no base64": {"POST", note, noted("=?base64?Ny4w"), 400, "-32020"},
		"another argument":         {"POST", note, noted("8"), 400, "-32020"},
		"no argument in a header":  {"POST", note, with("Mcp-Name", "note"), 400, "in.note"},
		"no argument":              {"POST", empty, with("Mcp-Name", "note"), 200, "result"},
		"an argument in a header":  {"POST", empty, noted("7"), 400, "-32020"},
		"a name that is not ASCII": {"POST", call, with("Mcp-Name", "pïd"), 400, "-32020"},
		"an unknown tool": {"POST", modernBody("tools/call", `,"name":"none"`), modernHeaders("tools/call", "none"),
			400, "-32602"},
		"a notification": {"POST", strings.Replace(call, `"id":1,`, "", 1), headers, 202, ""},
		"a response":     {"POST", `{"jsonrpc":"2.0","id":1,"result":{}}`, headers, 400, "-32600"},
		"discover": {"POST", modernBody("server/discover", ""), modernHeaders("server/discover", ""), 200,
			`"supportedVersions":["2026-07-28"]`},
		"a session":  {"POST", call, with("Mcp-Session-Id", "none"), 200, "result"},
		"a stream":   {"GET", "", headers[:2], 405, ""},
		"an end":     {"DELETE", "", nil, 405, ""},
		"initialize": {"POST", mcpInitialize, nil, 400, `"id":0,"error":{"code":-32022`},
		"no session": {"POST", mcpTool("pid", "{}"), nil, 400, `mcp.era = \"legacy\"`},
	} {
		a := e.mcp(c.method, c.body, c.headers...)
		require.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		require.Contains(t, string(a.body), c.holds, name)
		require.Empty(t, a.header.Get("Mcp-Session-Id"), name)
	}
	require.Len(t, e.processes.List(), 1)
	require.NoError(t, e.processes.List()[0].Conn().Err(), "each message had _meta")
}

// A client that leaves cancels its request.
func TestARequestWithoutASessionHasItsNotificationsAndIsCancelled(t *testing.T) {
	e := openModern(t, 1, spec.MCPShared)
	steps := string(e.tool("steps").body)
	require.Equal(t, 2, strings.Count(steps, `"progressToken":"t"`), steps)
	require.NotContains(t, steps, "a line")
	level := `"io.modelcontextprotocol/logLevel":"info"`
	require.Contains(t, string(e.tool("steps", level).body), "a line")
	body := strings.Replace(modernBody("tools/call", `,"name":"steps"`), `"_meta":{`, `"_meta":{`+level+`,`, 1)
	json := e.mcp("POST", body, append(modernHeaders("tools/call", "steps"), "Accept", "application/json")...)
	require.Equal(t, "application/json", json.header.Get("Content-Type"), "a client that takes no events")
	require.Contains(t, string(json.body), `"id":1,"result"`)
	require.NotContains(t, string(json.body), "a line")

	hold := e.stream(strings.Replace(body, "steps", "hold", 1), "tools/call", "hold")
	require.Eventually(t, func() bool { return strings.Contains(string(e.tool("pid").body), `"held": 1`) }, timeout, poll)
	require.NotContains(t, string(e.tool("steps", level).body), "a line", "two requests have asked for it")
	hold.stop()
	require.Eventually(t, func() bool { return strings.Contains(string(e.tool("pid").body), `"held": 0`) }, timeout, poll)
}

// suspending suspends the worker p/0 once, after a call of a tool has started there and before it is sent.
type suspending struct {
	trace.Tracer
	e    *env
	once sync.Once
}

func (s *suspending) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	if config := trace.NewSpanStartConfig(o...); name == "p/tools/call" && config.SpanKind() == trace.SpanKindClient {
		s.once.Do(func() {
			background(func() api.SuspendResult { return s.e.gateway.Suspend(s.e.t.Context(), suspendRequest(1, "", 0)) })
			assert.Eventually(s.e.t, func() bool {
				suspension := s.e.gateway.Suspension("p/0", 1)
				return suspension != nil && suspension.CallsCut == 1
			}, timeout, poll)
		})
	}
	return s.Tracer.Start(ctx, name, o...)
}

func TestARequestThatWaitsForAnotherProcessHasTheLogOfNone(t *testing.T) {
	tracer := &suspending{Tracer: sdktrace.NewTracerProvider().Tracer("test")}
	e := openModern(t, 1, spec.MCPShared, withConfig(func(c *Config) { c.Tracer = tracer }))
	tracer.e = e
	asks := inLine(e, func() answer { return e.tool("steps", `"io.modelcontextprotocol/logLevel":"info"`) })
	e.gateway.mcp.Receive("p", "p/0", 1, wire.Incoming{Method: "notifications/message", Params: []byte(`"another's"`)})
	e.gateway.EndSuspension(t.Context(), resumption)
	answered := string(await(t, asks).body)
	require.Contains(t, answered, "a line")
	require.NotContains(t, answered, "another's")
}

// stream makes a request of a client without a session, which is answered with events.
func (e *env) stream(body, method, name string) *answerLines {
	e.t.Helper()
	return e.lines("POST", "/mcp/p", body, append(modernHeaders(method, name), "Content-Type", "application/json")...)
}

// A client listens to all processes of the pool, and to those that come later.
func TestAClientOfMCPListens(t *testing.T) {
	e := openModern(t, 1, spec.MCPShared, withSpec(func(sp *spec.Spec) { sp.MCP.MaxSessions = 1 }))
	body := modernBody("subscriptions/listen", `,"notifications":{"toolsListChanged":true,"promptsListChanged":true}`)
	got := e.stream(body, "subscriptions/listen", "")
	require.Contains(t, got.after("data: "), `"method":"notifications/subscriptions/acknowledged","params":{"_meta":{`+
		`"io.modelcontextprotocol/subscriptionId":1},"notifications":{"toolsListChanged":true}}`)
	a := e.mcp("POST", body, modernHeaders("subscriptions/listen", "")...)
	require.Equal(t, 503, a.status, "mcp.max_sessions")
	require.Equal(t, 1, e.gateway.Snapshot().MCP["p"].Streams)
	changed := `"method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`
	e.tool("change")
	require.Contains(t, got.after("data: "), changed)
	e.start(1, 1)
	for _, p := range e.processes.List() {
		require.Eventually(t, func() bool {
			a, err := p.Conn().Call(t.Context(), modernCall("pid"))
			return err == nil && strings.Contains(string(a.Payload), `"listen": 1`)
		}, timeout, poll)
		require.NoError(t, errorOf(p.Conn().Call(t.Context(), modernCall("change"))))
	}
	require.Contains(t, got.after("data: "), changed) // of two processes at once
	require.NoError(t, e.gateway.Leave(t.Context()))
	require.Equal(t, `"resultType":"complete"}}`,
		got.after(`data: {"jsonrpc":"2.0","id":1,"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":1},`))
	require.Empty(t, got.after("data: "), "that is its end")
}

// A client with a session subscribes to a resource of all processes of the pool, also of those that come later.
func TestAClientOfSharedProcessesSubscribes(t *testing.T) {
	e := openModern(t, 1, spec.MCPShared, legacy(func(*spec.Spec) {}))
	one, two := e.initialize(), e.initialize()
	subscribe := func(session []string, method, uri string) string {
		return string(e.mcp("POST", `{"jsonrpc":"2.0","id":1,"method":"resources/`+method+`","params":{"uri":"`+uri+`"}}`,
			session...).body)
	}
	got, streams := map[string]int{}, map[string]*answerLines{}
	for name, session := range map[string][]string{"one": one, "two": two} {
		streams[name] = e.lines("GET", "/mcp/p", "", append([]string{"Accept", "text/event-stream"}, session...)...)
	}
	require.Eventually(t, func() bool { return e.gateway.Snapshot().MCP["p"].Streams == 2 }, timeout, poll)
	update := func(uris int) { // of all processes at once
		var calls sync.WaitGroup
		for _, p := range e.processes.List() {
			require.Eventually(t, func() bool {
				a, err := p.Conn().Call(t.Context(), wire.Request{Method: "tools/call", Payload: []byte(`{"name":"pid"}`)})
				return err == nil && strings.Contains(string(a.Payload), fmt.Sprintf(`"uris": %d}`, uris))
			}, timeout, poll)
		}
		for _, p := range e.processes.List() {
			calls.Go(func() {
				_, err := p.Conn().Call(t.Context(), wire.Request{Method: "tools/call", Payload: []byte(`{"name":"update"}`)})
				assert.NoError(t, err)
			})
		}
		calls.Wait()
	}
	heard := func(want map[string]int) {
		require.Eventually(t, func() bool {
			for name, stream := range streams {
				for len(stream.lines) > 0 {
					if line := <-stream.lines; strings.HasPrefix(line, "data: {") {
						got[name+" "+strings.TrimPrefix(line, `data: {"jsonrpc":"2.0","method":"notifications/resources/updated",`)]++
					}
				}
			}
			return maps.Equal(want, got)
		}, timeout, poll, "%v", got)
	}
	require.Contains(t, subscribe(one, "subscribe", "a"), `"result":{}`)
	require.Contains(t, subscribe(two, "subscribe", "a"), `"result":{}`)
	require.Contains(t, subscribe(two, "subscribe", "é"), `"result":{}`)
	require.Contains(t, subscribe(nil, "subscribe", "a"), "-32601", "without a session")
	require.Contains(t, subscribe(one, "unsubscribe", "b"), `"result":{}`, "which it has not")
	require.Contains(t, subscribe(one, "unsubscribe", ""), "-32602")
	require.Contains(t, subscribe(one, "subscribe", strings.Repeat("u", 9<<10)), "-32602")
	update(2)
	heard(map[string]int{`one "params":{"uri": "a"}}`: 1, `two "params":{"uri": "a"}}`: 1, `two "params":{"uri": "\u00e9"}}`: 1})
	e.start(1, 1)
	require.Contains(t, subscribe(two, "unsubscribe", "a"), `"result":{}`)
	update(2) // two processes: still a, for the client one, and é
	heard(map[string]int{`one "params":{"uri": "a"}}`: 2, `two "params":{"uri": "a"}}`: 1, `two "params":{"uri": "\u00e9"}}`: 2})
	require.Equal(t, 204, e.mcp("DELETE", "", two...).status)
	update(1)
	heard(map[string]int{`one "params":{"uri": "a"}}`: 3, `two "params":{"uri": "a"}}`: 1, `two "params":{"uri": "\u00e9"}}`: 2})
}

func modernCall(tool string) wire.Request {
	return wire.Request{Method: "tools/call", Payload: []byte(`{"_meta":{},"name":"` + tool + `"}`)}
}

var pidOf = regexp.MustCompile(`"pid": ?(\d+)`)

// In mode request no process serves two requests, in mode session not two at once.
func TestTheProcessOfARequestOfMCP(t *testing.T) {
	for _, mode := range []string{spec.MCPRequest, spec.MCPSession} {
		t.Run(mode, func(t *testing.T) {
			e := openModern(t, 2, mode)
			seen := map[string]int{}
			for range 4 {
				a := e.tool("pid")
				require.Equal(t, 200, a.status, "%s", a.body)
				seen[pidOf.FindStringSubmatch(string(a.body))[1]]++
			}
			require.Equal(t, mode == spec.MCPRequest, len(seen) == 4, "%v", seen)
			e.stream(modernBody("tools/call", `,"name":"hold"`), "tools/call", "hold")
			require.Eventually(t, func() bool {
				for _, p := range e.processes.List() {
					if p.Conn() != nil && p.Conn().InFlight() == 1 {
						return true
					}
				}
				return false
			}, timeout, poll)
			for range 2 {
				require.Contains(t, string(e.tool("pid").body), `"held": 0`)
			}
		})
	}
}

// A client with a session has no process in mode request; each of its requests does.
func TestTheProcessesOfASessionOfModeRequest(t *testing.T) {
	e := openModern(t, 2, spec.MCPRequest, legacy(func(*spec.Spec) {}))
	a := e.mcp("POST", mcpInitialize)
	require.Contains(t, string(a.body), `"protocolVersion":"2025-06-18"`)
	require.NotContains(t, string(a.body), "logging")
	require.NotContains(t, string(a.body), "subscribe")
	session := e.initialize()
	var clients sync.WaitGroup
	var pids sync.Map
	for range 8 {
		clients.Go(func() {
			a := e.mcp("POST", mcpTool("pid", "{}"), session...)
			pid := pidOf.FindStringSubmatch(string(a.body))
			if assert.NotNil(t, pid, "%s", a.body) {
				_, seen := pids.LoadOrStore(pid[1], true)
				assert.False(t, seen, "one request for each process")
			}
		})
	}
	clients.Wait()
	a = e.mcp("POST", modernBody("tools/call", `,"name":"pid"`), modernHeaders("tools/call", "pid")...)
	require.Equal(t, 400, a.status)
	require.Contains(t, string(a.body), `"supported":["2024-11-05"`)
}
