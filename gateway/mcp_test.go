package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/mcp"
	"github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/spec"
)

// openMCP returns an env whose workers are the reference server of MCP, and the folder with its packages.
func openMCP(t *testing.T, workers int, mode string, options ...option) (e *env, dir string) {
	need.Program(t, "node")
	dir = examplesetup.Copy(t, filepath.Join("testdata", "mcp"))
	server := withSpec(func(sp *spec.Spec) {
		sp.Pool.Command = []string{"node",
			filepath.Join(dir, "node_modules/@modelcontextprotocol/server-everything/dist/index.js"), "stdio"}
		sp.Pool.Protocol, sp.Pool.MaxInflight, sp.MCP.Mode = spec.ProtocolJSONRPC, 16, mode
		require.NoError(t, sp.Validate())
	})
	tcp := withConfig(func(c *Config) { c.Listen = "127.0.0.1:0" })
	return open(t, workers, append([]option{server, tcp}, options...)...), dir
}

// mcp sends a message, or another request without one, and reads the whole answer.
func (e *env) mcp(method, body string, headers ...string) answer {
	e.t.Helper()
	return e.send(method, "/mcp/p", strings.NewReader(body), append([]string{"Content-Type", "application/json", "Accept",
		"application/json, text/event-stream"}, headers...)...)
}

// initialize begins a session and returns its header.
func (e *env) initialize(headers ...string) []string {
	e.t.Helper()
	a := e.mcp("POST", mcpInitialize, headers...)
	require.Equal(e.t, http.StatusOK, a.status, "%s", a.body)
	session := append([]string{"Mcp-Session-Id", a.header.Get("Mcp-Session-Id")}, headers...)
	require.NotEmpty(e.t, session[1])
	require.Equal(e.t, http.StatusAccepted,
		e.mcp("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session...).status)
	return session
}

const mcpInitialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
	`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

func TestTheSDKsClientUsesAPool(t *testing.T) {
	for _, mode := range []string{spec.MCPShared, spec.MCPSession} {
		t.Run(mode, func(t *testing.T) {
			e, dir := openMCP(t, 1, mode)
			command := exec.CommandContext(t.Context(), "node", filepath.Join(dir, "client.mjs"), e.gateway.Endpoint()+"/mcp/p",
				mode)
			var errors strings.Builder
			command.Stderr = &errors
			output, err := command.Output()
			require.NoError(t, err, errors.String())
			var got struct {
				Server, Echo, Long, Sample, RootList string
				Session                              bool
				Tools                                []string
				Progress                             []int
				Logs, Sampled, Roots                 int
				Capabilities                         map[string]json.RawMessage
			}
			require.NoError(t, json.Unmarshal(output, &got), "%s", output)
			require.Equal(t, "mcp-servers/everything", got.Server)
			require.True(t, got.Session)
			require.Contains(t, got.Tools, "get-sum")
			require.Equal(t, "Echo: line\nünïcödé 語", got.Echo)
			require.Equal(t, []int{1, 2, 3, 4}, got.Progress)
			require.Contains(t, got.Long, "completed")
			if mode == spec.MCPShared {
				require.NotContains(t, got.Capabilities, "logging")
				require.Zero(t, got.Logs+got.Sampled+got.Roots)
				return
			}
			require.Contains(t, got.Sample, "sampled text")
			require.Contains(t, got.RootList, "root of the test")
			require.Equal(t, []int{1, 1}, []int{got.Sampled, got.Roots})
			require.Positive(t, got.Logs)
			require.Eventually(t, func() bool { return e.outcome(0) == api.OutcomeClose }, timeout, poll,
				"nobody inherits the process")
		})
	}
}

// outcome is the newest outcome of a worker's leases, "" for none.
func (e *env) outcome(slot int) (o api.Outcome) {
	e.control.with(api.WorkerName("p", slot), func(w *fakeWorker) {
		if len(w.outcomes) > 0 {
			o = w.outcomes[len(w.outcomes)-1]
		}
	})
	return o
}

func TestAnswersOfMCPAreNeverCrossed(t *testing.T) {
	e, _ := openMCP(t, 2, spec.MCPShared)
	var clients sync.WaitGroup
	for n := range 200 { // all with the id 1
		clients.Go(func() {
			a := e.mcp("POST", mcpTool("echo", fmt.Sprintf(`{"message":"m-%d-"}`, n)))
			assert.Contains(t, string(a.body), fmt.Sprintf("m-%d-", n))
		})
	}
	clients.Wait()
	for n := range 50 { // all with the progress token "t"
		clients.Go(func() {
			session := e.initialize()
			a := e.mcp("POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"t"},`+
				`"name":"trigger-long-running-operation","arguments":{"duration":0.2,"steps":%d}}}`, n%5+1), session...)
			assert.Equal(t, n%5+1, strings.Count(string(a.body), `"progressToken":"t"`), "%s", a.body)
			assert.Equal(t, n%5+1, strings.Count(string(a.body), fmt.Sprintf(`"total":%d`, n%5+1)), "%s", a.body)
		})
	}
	clients.Wait()
}

func TestClientsOfMCPHaveTheToolsOfTheSpec(t *testing.T) {
	tools := withSpec(func(sp *spec.Spec) {
		sp.MCP.Tools, sp.MCP.ToolsDeny = []string{"e*", "get-*"}, []string{"get-env"}
	})
	e, _ := openMCP(t, 1, spec.MCPShared, tools)
	var list struct {
		Result struct {
			Tools []struct{ Name, Description string }
		}
	}
	require.NoError(t, json.Unmarshal(e.mcp("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).body, &list))
	names := map[string]bool{}
	for _, tool := range list.Result.Tools {
		require.NotEmpty(t, tool.Description)
		require.Regexp(t, "^(e|get-)", tool.Name)
		names[tool.Name] = true
	}
	require.True(t, names["echo"] && names["get-sum"] && !names["get-env"], names)
	require.Contains(t, string(e.mcp("POST", mcpTool("echo", `{"message":"x"}`)).body), "Echo: x")
	for _, name := range []string{`"name":"get-env"`, `"name":"toggle-simulated-logging"`, `"name":"echo","NAME":"get-env"`} {
		a := e.mcp("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+name+`,"arguments":{"message":"x"}}}`)
		require.Contains(t, string(a.body), `"code":-32602,"message":"unknown tool`, name)
	}
	modern := openModern(t, 1, spec.MCPShared, tools)
	a := modern.tool("hold")
	require.Equal(t, 400, a.status)
	require.Contains(t, string(a.body), "-32602")
}

func TestWhatTheEndpointOfMCPRefuses(t *testing.T) {
	e, _ := openMCP(t, 1, spec.MCPShared, withSpec(func(sp *spec.Spec) { sp.MCP.MaxSessions = 2 }))
	session := e.initialize()
	echo := mcpTool("echo", `{"message":"x"}`)
	for name, c := range map[string]struct {
		method, body string
		headers      []string
		status       int
		holds        string
	}{
		"another origin":             {"GET", "", []string{"Origin", "http://evil.example"}, 403, "origin"},
		"the gateway's origin":       {"POST", echo, []string{"Origin", "http://gateway"}, 200, "Echo: x"},
		"a client without a session": {"POST", echo, nil, 200, "Echo: x"},
		"an unknown session":         {"POST", echo, []string{"Mcp-Session-Id", "here.unknown"}, 404, "-32001"},
		"another method":             {"PUT", echo, nil, 405, ""},
		"another type":               {"POST", echo, []string{"Content-Type", "text/plain"}, 415, "-32600"},
		"nothing acceptable":         {"POST", echo, []string{"Accept", "text/html"}, 406, "-32600"},
		"events only": {"POST", echo, []string{"Accept", "text/event-stream"}, 200,
			"event: message\ndata: {"},
		"no JSON":                     {"POST", "{", nil, 400, "-32700"},
		"a batch":                     {"POST", "[" + echo + "]", nil, 400, "-32600"},
		"no message":                  {"POST", `{"jsonrpc":"2.0","id":1}`, nil, 400, "-32600"},
		"an unknown revision":         {"POST", echo, []string{"Mcp-Protocol-Version", "1999-01-01"}, 400, "-32600"},
		"a revision without sessions": {"POST", echo, []string{"Mcp-Protocol-Version", "2026-07-28"}, 400, "-32022"},
		"a response to nothing":       {"POST", `{"jsonrpc":"2.0","id":7,"result":{}}`, session, 400, "-32600"},
		"what needs a process": {"POST", `{"jsonrpc":"2.0","id":"a","method":"logging/setLevel","params":{"level":"info"}}`,
			session, 200, `"id":"a","error":{"code":-32601`},
		"a tool that is not there": {"POST", mcpTool("none", `{}`), session, 200, "none"},
		"a method that is not there": {"POST", `{"jsonrpc":"2.0","id":1,"method":"x/y"}`, session, 200,
			`"error":{"code":-32601`},
		"a resumed stream":          {"GET", "", append([]string{"Last-Event-ID", "1"}, session...), 400, "-32600"},
		"a stream without sessions": {"GET", "", nil, 405, "-32600"},
		"an end of no session":      {"DELETE", "", nil, 400, "-32600"},
	} {
		a := e.mcp(c.method, c.body, c.headers...)
		require.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		require.Contains(t, string(a.body), c.holds, name)
	}
	e.initialize()
	a := e.mcp("POST", mcpInitialize)
	require.Equal(t, 503, a.status, "mcp.max_sessions")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Equal(t, 204, e.mcp("DELETE", "", session...).status)
	require.Equal(t, 404, e.mcp("POST", echo, session...).status)
	e.initialize()
}

func TestASessionOfMCPIsItsClients(t *testing.T) {
	tokens, one := tokensFile(t, []string{"*"}, "call")
	two := addToken(t, tokens, "two", []string{"*"}, "call")
	e, _ := openMCP(t, 1, spec.MCPSession, withTokens(tokens))
	session := e.mcpAs(one, "", mcpInitialize).header.Get("Mcp-Session-Id")
	headers := []string{"Content-Type", "application/json", "Mcp-Session-Id", session}
	require.Equal(t, 202, e.mcpAs(one, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`).status)
	echo := mcpTool("echo", `{"message":"x"}`)
	for _, idle := range []bool{false, true} {
		if idle {
			e.awaitIdle()
			require.Eventually(t, func() bool { return e.outcome(0) == api.OutcomeClose }, timeout, poll)
			e.start(0, 2)
		}
		for _, method := range []string{"POST", "GET", "DELETE"} {
			require.Equal(t, 404, e.tcp(method, "/mcp/p", two, echo, headers...).status, method)
		}
		require.Equal(t, 200, e.mcpAs(one, session, echo).status)
	}
	require.Equal(t, mcp.Counts{Sessions: 1, Replays: 1}, e.gateway.Snapshot().MCP["p"])
	bound, _, _ := e.config.Events.FromOldest(events.Filter{Types: []string{api.EventSessionBound}}).Read()
	require.Len(t, bound, 2)
	for i, event := range bound {
		require.Contains(t, string(event.JSON), fmt.Sprintf(`"worker":"p/0","incarnation":%d,"principal":"token `, i+1))
	}
	require.Equal(t, 204, e.tcp("DELETE", "/mcp/p", one, "", headers...).status)
	require.Eventually(t, func() bool { return e.mcpAs(one, session, echo).status == 404 }, timeout, poll, "it has ended")
}

// The session store has clients' sessions, too: MCP clients do not fill it.
func TestTheRecordsOfMCPInTheSessionStore(t *testing.T) {
	store := embedded.InMemory(sessions.Config{})
	e, _ := openMCP(t, 1, spec.MCPShared, withStore(store), withSpec(func(sp *spec.Spec) { sp.MCP.MaxSessions = 2 }))
	for range 3 {
		for range 2 {
			e.initialize()
		}
		e.awaitIdle()
	}
	require.Eventually(t, func() bool {
		n, err := store.Count(t.Context())
		return err == nil && n == 2
	}, timeout, poll)

	slow := slowToDelete{store, make(chan struct{})}
	defer close(slow.deletes)
	e, _ = openMCP(t, 1, spec.MCPShared, withStore(slow))
	ended := e.initialize()
	require.Equal(t, 204, e.mcp("DELETE", "", ended...).status)
	a := e.mcp("POST", mcpTool("echo", `{"message":"x"}`), ended...)
	require.Equal(t, 404, a.status, "its record is still there, but it has ended: %s", a.body)
}

func TestManyClientsOfMCPGetNoMoreThanThePoolsProcesses(t *testing.T) {
	e, _ := openMCP(t, 2, spec.MCPSession, withSpec(func(sp *spec.Spec) {
		sp.MCP.Idle, sp.Queue.Timeout = spec.Duration(2*time.Second), spec.Duration(100*time.Millisecond)
	}))
	var clients sync.WaitGroup
	var begun, refused atomic.Int64
	places := make(chan struct{}, 64)
	for range 1000 {
		places <- struct{}{}
		clients.Go(func() {
			defer func() { <-places }()
			switch a := e.mcp("POST", mcpInitialize); a.status {
			case 200:
				begun.Add(1)
			case 503:
				assert.NotEmpty(t, a.header.Get("Retry-After"))
				refused.Add(1)
			default:
				assert.Fail(t, "unexpected", "%d %s", a.status, a.body)
			}
		})
	}
	clients.Wait()
	t.Log(begun.Load(), refused.Load())
	require.Equal(t, int64(1000), begun.Load()+refused.Load())
	require.Len(t, e.processes.List(), 2)
	require.Eventually(t, func() bool {
		return e.outcome(0) == api.OutcomeClose && e.outcome(1) == api.OutcomeClose
	}, timeout, poll, "idle clients have left")
}

func TestASessionOfMCPOutlivesItsProcess(t *testing.T) {
	for after, want := range map[string]string{
		spec.CrashTell: "is lost", spec.CrashSilent: "Echo: x", spec.CrashEnd: "-32001",
	} {
		e, _ := openMCP(t, 1, spec.MCPSession, withSpec(func(sp *spec.Spec) { sp.MCP.AfterCrash = after }))
		session := e.initialize()
		call := func(tool, arguments string) answer { return e.mcp("POST", mcpTool(tool, arguments), session...) }
		require.Contains(t, string(call("echo", `{"message":"x"}`).body), "Echo: x")
		first, _ := e.processes.Get("p/0", 1)
		long := background(func() answer { return call("trigger-long-running-operation", `{"duration":60,"steps":1}`) })
		require.Eventually(t, func() bool { return first.Conn().InFlight() == 1 }, timeout, poll)
		require.NoError(t, syscall.Kill(first.Info().PID, syscall.SIGKILL))
		require.Contains(t, string(await(t, long).body), `"code":-32603,"message":"p/0 ended`)
		<-first.Done()
		e.start(0, 2)
		if after == spec.CrashTell { // the failed call has told
			second, _ := e.processes.Get("p/0", 2)
			require.Contains(t, string(call("echo", `{"message":"x"}`).body), "Echo: x")
			require.NoError(t, syscall.Kill(second.Info().PID, syscall.SIGKILL))
			<-second.Done()
			e.start(0, 3)
		}
		require.Contains(t, string(call("echo", `{"message":"x"}`).body), want, after)
		if after != spec.CrashEnd {
			require.Contains(t, string(call("echo", `{"message":"x"}`).body), "Echo: x")
		}
	}
}

// A client may cancel a request; the server does not answer it then, and goes on with the others.
func TestACancelledRequestOfMCPCostsNobodyTheProcess(t *testing.T) {
	e, _ := openMCP(t, 1, spec.MCPSession, withSpec(func(sp *spec.Spec) {
		sp.Call.CancelGrace = spec.Duration(200 * time.Millisecond)
	}))
	session := e.initialize()
	p, _ := e.processes.Get("p/0", 1)
	for seconds := 2; ; seconds *= 2 { // until the cancellation is in time
		operation := mcpTool("trigger-long-running-operation", fmt.Sprintf(`{"duration":%d,"steps":1}`, seconds))
		long := background(func() answer { return e.mcp("POST", operation, session...) })
		require.Eventually(t, func() bool { return p.Conn().InFlight() == 1 || len(long) == 1 }, timeout, poll)
		require.Equal(t, 202, e.mcp("POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
			session...).status)
		answered := string(await(t, long).body)
		require.Eventually(t, func() bool { return p.Conn().InFlight() == 0 }, timeout, poll, "its place is free")
		require.Contains(t, string(e.mcp("POST", operation, session...).body), "completed", "a late response does no harm")
		if strings.Contains(answered, `"code":"cancelled"`) {
			break
		}
		require.Less(t, seconds, 60, answered)
	}
	require.NoError(t, p.Conn().Err())
}

// Two principals use server-memory with a folder and a variable of each. Neither reads what the other one stores, also
// once processes have crashed and clients have come back.
func TestPrincipalsOfMCPHaveTheirOwnProcesses(t *testing.T) {
	dir := t.TempDir()
	tokens, one := tokensFile(t, []string{"*"}, "call")
	tokenOf := map[string]string{"one": one, "two": addToken(t, tokens, "two", []string{"*"}, "call")}
	file, err := access.ReadFile(tokens)
	require.NoError(t, err)
	for i, name := range []string{"one", "two"} { // each in another file, which the variable names
		path := filepath.Join(dir, "token-"+file.Tokens[i].Name)
		require.NoError(t, os.WriteFile(path, []byte(name+".json\n"), 0o600))
	}
	e, packages := openMCP(t, 2, spec.MCPSession, withTokens(tokens), withSpec(func(sp *spec.Spec) {
		sp.MCP.Env = map[string]string{"NAME": "file:" + dir + "/{principal}", "OF": "header:X-Of"}
		sp.Pool.Dir = filepath.Join(dir, "memory-{key}")
		server := "node_modules/@modelcontextprotocol/server-memory/dist/index.js"
		sp.Pool.Command = []string{"sh", "-c", `MEMORY_FILE_PATH="$PWD/$OF-$NAME" exec node "` + dir + `/packages/` +
			server + `"`}
	}))
	require.NoError(t, os.Symlink(packages, filepath.Join(dir, "packages")))
	post := func(name, session, body string) (text, id string) {
		a := e.mcpAs(tokenOf[name], session, body, "X-Of", "of-"+name)
		require.Less(t, a.status, 300, "%s", a.body)
		return string(a.body), a.header.Get("Mcp-Session-Id")
	}
	begin := func(name string) (session string) {
		_, session = post(name, "", mcpInitialize)
		post(name, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		return session
	}
	read := func(name, session string) string {
		text, _ := post(name, session, mcpTool("read_graph", "{}"))
		if strings.Contains(text, "is lost") { // a crash is told once
			text, _ = post(name, session, mcpTool("read_graph", "{}"))
		}
		return text
	}
	sessions := map[string]string{}
	for _, name := range []string{"one", "two"} {
		sessions[name] = begin(name)
		post(name, sessions[name], mcpTool("create_entities", `{"entities":[{"name":"of `+name+
			`","entityType":"secret","observations":[]}]}`))
		folder := "memory-token-" + file.Tokens[len(sessions)-1].Name
		require.FileExists(t, filepath.Join(dir, folder, "of-"+name+"-"+name+".json"))
	}
	check := func() {
		for name, other := range map[string]string{"one": "two", "two": "one"} {
			text := read(name, sessions[name])
			require.Contains(t, text, "of "+name)
			require.NotContains(t, text, "of "+other)
		}
	}
	check()
	for slot := range 2 { // both processes crash; the sessions find their new ones in any order
		p, found := e.processes.Get(api.WorkerName("p", slot), 1)
		require.True(t, found)
		require.NoError(t, syscall.Kill(p.Info().PID, syscall.SIGKILL))
		<-p.Done()
	}
	e.start(1, 2)
	e.start(0, 2)
	check()
}
