package gateway

import (
	"bufio"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/spec"
)

// eventLines are the lines of an answer of events, until it ends or stop is called.
type eventLines struct {
	t     testing.TB
	lines chan string
	stop  func()
}

// events makes a request of a client with a session of 2025-11-25.
func (e *env) events(method, body, session string, headers ...string) (int, *eventLines) {
	e.t.Helper()
	ctx, stop := context.WithCancel(e.t.Context())
	e.t.Cleanup(stop)
	headers = append([]string{"Content-Type", "application/json", "Mcp-Session-Id", session,
		"Mcp-Protocol-Version", "2025-11-25"}, headers...)
	response, err := e.http.Do(requestOf(ctx, e.t, method, "http://gateway/mcp/p", strings.NewReader(body), headers...))
	require.NoError(e.t, err)
	got := &eventLines{e.t, make(chan string, 1000), stop}
	go func() {
		defer close(got.lines)
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, mebibyte)
		for lines.Scan() {
			got.lines <- lines.Text()
		}
	}()
	return response.StatusCode, got
}

// next returns the next line that begins so, without that; "" if the answer ends before.
func (l *eventLines) next(prefix string) string {
	l.t.Helper()
	late := time.After(timeout)
	for {
		select {
		case line, more := <-l.lines:
			if text, found := strings.CutPrefix(line, prefix); found || !more {
				return text
			}
		case <-late:
			require.Fail(l.t, "no line", prefix)
		}
	}
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

	_, post := e.events("POST", hold, session)
	first := post.next("id: ")
	require.Empty(t, post.next("data: "), "an event to resume after")
	post.stop()
	tool("free") // the answer comes while nobody is there
	for range 2 {
		status, again := e.events("GET", "", session, "Last-Event-ID", first)
		require.Equal(t, 200, status)
		answered := again.next("id: ")
		require.NotEqual(t, first, answered)
		require.Contains(t, again.next("data: "), `"id":"held","result":{"freed"`)
		require.Empty(t, again.next("data: "), "the request is over")
		status, _ = e.events("GET", "", session, "Last-Event-ID", answered)
		require.Equal(t, 400, status, "there is nothing after it")
	}
	status, _ := e.events("GET", "", other, "Last-Event-ID", first)
	require.Equal(t, 400, status, "it is another session's")

	_, post = e.events("POST", hold, session)
	first = post.next("id: ")
	status, again := e.events("GET", "", session, "Last-Event-ID", first)
	require.Equal(t, 200, status)
	require.Empty(t, post.next("id: "), "another connection has taken its place")
	tool("free")
	require.Contains(t, again.next("data: "), `"id":"held","result":{"freed"`)

	_, get := e.events("GET", "", session)
	require.Eventually(t, func() bool { return e.gateway.Snapshot().MCP["p"].Streams == 1 }, timeout, poll)
	tool("announce")
	heard := get.next("id: ")
	get.stop()
	require.Eventually(t, func() bool { return e.gateway.Snapshot().MCP["p"].Streams == 0 }, timeout, poll)
	tool("announce")
	_, get = e.events("GET", "", session, "Last-Event-ID", heard)
	require.Equal(t, strings.TrimSuffix(heard, "1")+"2", get.next("id: "))
	require.Contains(t, get.next("data: "), "list_changed")
	_, get = e.events("GET", "", session, "Last-Event-ID", strings.TrimSuffix(heard, "1")+"0")
	for _, number := range []string{"1", "2"} {
		require.Equal(t, strings.TrimSuffix(heard, "1")+number, get.next("id: "), "what it has not acknowledged")
	}
	for range 2 {
		tool("large")
		require.Greater(t, len(get.next(`data: {"jsonrpc":"2.0","method":"notifications/message"`)), uncountedBytes)
		e.requireMemoryFree() // else the stream would end for an answer that needs the memory
	}
}

// What an agent has kept is lost with it. The request has an error then, and the session continues.
func TestAStreamOfMCPIsResumedAtANewAgent(t *testing.T) {
	store := embedded.InMemory(sessions.Config{})
	in := withStore(store)
	e := openModern(t, 2, spec.MCPSession, resumable, in)
	session := e.initialize()[1]
	_, post := e.events("POST", mcpTool("hold", "{}"), session)
	request := post.next("id: ")
	_, get := e.events("GET", "", session)
	require.Eventually(t, func() bool { return e.gateway.Snapshot().MCP["p"].Streams == 1 }, timeout, poll)
	tool := func(name string) {
		e.mcp("POST", mcpTool(name, "{}"), "Mcp-Session-Id", session, "Accept", "application/json")
	}
	defer tool("free")
	tool("announce")
	heard := get.next("id: ")

	next := open(t, 2, withModern(t, spec.MCPSession), resumable, in)
	status, again := next.events("GET", "", session, "Last-Event-ID", request)
	require.Equal(t, 200, status)
	require.Contains(t, again.next("data: "), `"id":1,"error":{"code":-32603`)
	status, _ = next.events("GET", "", session, "Last-Event-ID", heard)
	require.Equal(t, 200, status)
	require.Contains(t, string(next.mcp("POST", mcpTool("pid", "{}"), "Mcp-Session-Id", session).body), "is lost")
	require.Contains(t, string(next.mcp("POST", mcpTool("pid", "{}"), "Mcp-Session-Id", session).body), `"pid"`)
}
