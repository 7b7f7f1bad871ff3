package gateway

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/spec"
)

// events makes a request of a client with a session of 2025-11-25.
func (e *env) events(method, body, session string, headers ...string) *answerLines {
	e.t.Helper()
	return e.lines(method, "/mcp/p", body, append([]string{"Content-Type", "application/json", "Mcp-Session-Id", session,
		"Mcp-Protocol-Version", "2025-11-25"}, headers...)...)
}

// resumable has sessions answer with events.
var resumable = legacy(func(sp *spec.Spec) { sp.MCP.SSEAfter = spec.Duration(50 * time.Millisecond) })

func TestAStreamOfMCPIsResumed(t *testing.T) {
	e := openModern(t, 2, spec.MCPSession, resumable)
	session, other := e.initialize()[1], e.initialize()[1]
	tool := func(name string) answer {
		return e.mcp("POST", mcpTool(name, "{}"), "Mcp-Session-Id", session, "Accept", "application/json")
	}
	hold := strings.Replace(mcpTool("hold", "{}"), `"id":1`, `"id":"held"`, 1)

	post := e.events("POST", hold, session)
	first := post.after("id: ")
	require.Empty(t, post.after("data: "), "an event to resume after")
	post.stop()
	tool("free") // the answer comes while nobody is there
	for range 2 {
		again := e.events("GET", "", session, "Last-Event-ID", first)
		require.Equal(t, 200, again.status)
		answered := again.after("id: ")
		require.NotEqual(t, first, answered)
		require.Contains(t, again.after("data: "), `"id":"held","result":{"freed"`)
		require.Empty(t, again.after("data: "), "the request is over")
		require.Equal(t, 400, e.events("GET", "", session, "Last-Event-ID", answered).status, "there is nothing after it")
	}
	require.Equal(t, 400, e.events("GET", "", other, "Last-Event-ID", first).status, "it is another session's")

	post = e.events("POST", hold, session)
	first = post.after("id: ")
	again := e.events("GET", "", session, "Last-Event-ID", first)
	require.Equal(t, 200, again.status)
	require.Empty(t, post.after("id: "), "another connection has taken its place")
	tool("free")
	require.Contains(t, again.after("data: "), `"id":"held","result":{"freed"`)

	get := e.events("GET", "", session)
	primed := get.after("id: ")
	require.Empty(t, get.after("data: "), "an event to resume after")
	tool("announce")
	heard := get.after("id: ")
	require.Equal(t, heard, e.events("GET", "", session, "Last-Event-ID", primed).after("id: "), "no event twice")
	get = e.events("GET", "", session, "Last-Event-ID", heard)
	get.stop()
	require.Eventually(t, func() bool { return e.gateway.Snapshot().MCP["p"].Streams == 0 }, timeout, poll)
	tool("announce")
	get = e.events("GET", "", session, "Last-Event-ID", heard)
	require.Equal(t, strings.TrimSuffix(heard, "1")+"2", get.after("id: "))
	require.Contains(t, get.after("data: "), "list_changed")
	get = e.events("GET", "", session, "Last-Event-ID", primed)
	for _, number := range []string{"1", "2"} {
		require.Equal(t, strings.TrimSuffix(heard, "1")+number, get.after("id: "), "what it has not acknowledged")
	}
	for range 2 {
		tool("large")
		require.Greater(t, len(get.after(`data: {"jsonrpc":"2.0","method":"notifications/message"`)), uncountedBytes)
		e.requireMemoryFree() // else the stream would end for an answer that needs the memory
	}
}

// What an agent has kept is lost with it. The request has an error then, and the session continues.
func TestAStreamOfMCPIsResumedAtANewAgent(t *testing.T) {
	store := embedded.InMemory(sessions.Config{})
	in := withStore(store)
	e := openModern(t, 2, spec.MCPSession, resumable, in)
	session := e.initialize()[1]
	post := e.events("POST", mcpTool("hold", "{}"), session)
	request := post.after("id: ")
	defer e.mcp("POST", mcpTool("free", "{}"), "Mcp-Session-Id", session, "Accept", "application/json")
	heard := e.events("GET", "", session).after("id: ")

	next := open(t, 2, withModern(t, spec.MCPSession), resumable, in)
	again := next.events("GET", "", session, "Last-Event-ID", request)
	require.Equal(t, 200, again.status)
	require.Contains(t, again.after("data: "), `"id":1,"error":{"code":-32603`)
	get := next.events("GET", "", session, "Last-Event-ID", heard)
	require.NotEqual(t, heard, get.after("id: "), "it can be resumed, too, before there is anything in it")
	require.Contains(t, string(next.mcp("POST", mcpTool("pid", "{}"), "Mcp-Session-Id", session).body), "is lost")
	require.Contains(t, string(next.mcp("POST", mcpTool("pid", "{}"), "Mcp-Session-Id", session).body), `"pid"`)
}

// A client answers what its process asked before the agent was replaced. That is no answer to what another one asks.
func TestALateAnswerOfAClientOfMCPAnswersNoOtherQuestion(t *testing.T) {
	in := withStore(embedded.InMemory(sessions.Config{}))
	silent := legacy(func(sp *spec.Spec) { sp.MCP.AfterCrash = spec.CrashSilent })
	e := openModern(t, 1, spec.MCPSession, silent, in)
	session := e.initialize()
	asks := func(e *env) (id string) {
		e.mcp("POST", mcpTool("ask", "{}"), append(session, "Accept", "application/json")...)
		asked := e.lines("GET", "/mcp/p", "", session...).after("data: ")
		return string(decode[struct{ ID json.RawMessage }](t, []byte(asked)).ID)
	}
	answer := func(e *env, id, result string) int {
		return e.mcp("POST", `{"jsonrpc":"2.0","id":`+id+`,"result":"`+result+`"}`, session...).status
	}
	late := asks(e)
	next := open(t, 1, withModern(t, spec.MCPSession), silent, in)
	asked := asks(next)
	require.Equal(t, 400, answer(next, late, "late"))
	require.Equal(t, 202, answer(next, asked, "right"))
	require.Contains(t, string(next.mcp("POST", mcpTool("pid", "{}"), session...).body), `"answers": ["right"]`)
}

// A stream of what a server sends unasked ends with the gateway that its client has chosen, also one that the client
// has resumed. That of a request lasts until its answer.
func TestAResumedStreamOfMCPAtAnotherHostEndsWithTheGateway(t *testing.T) {
	t.Parallel()
	secret := t.TempDir() + "/peer" // else a host does not believe another one who the client is
	writeSecret(t, secret, strings.Repeat("a", 32))
	servers := []option{withModern(t, spec.MCPSession), resumable,
		withConfig(func(c *Config) { c.Security.PeerTokenFile = secret })}
	there := openThere(t, servers...)
	here := openHere(t, there, 0, servers...)
	session := here.initialize()[1]
	heard := here.events("GET", "", session).after("id: ")
	post := here.events("POST", mcpTool("hold", "{}"), session)
	request := post.after("id: ")
	get := here.events("GET", "", session, "Last-Event-ID", heard)
	post = here.events("GET", "", session, "Last-Event-ID", request)
	left := background(func() error { return here.gateway.Leave(t.Context()) })
	require.Empty(t, get.after("data: "), "it has ended")
	there.mcp("POST", mcpTool("free", "{}"), "Mcp-Session-Id", session, "Accept", "application/json")
	require.Contains(t, post.after("data: "), `"id":1,"result":{"freed"`)
	require.NoError(t, await(t, left))
}
