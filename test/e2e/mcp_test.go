package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// Clients of MCP lease the workers of a pool. Each has a process that nobody inherits, and outlives its crash.
func TestASessionOfMCPIsALease(t *testing.T) {
	need.Program(t, "node")
	dir := examplesetup.Copy(t, "../../gateway/testdata/mcp")
	env := newEnv(t)
	secret := filepath.Join(t.TempDir(), "peers") // else a host does not believe another one who the client is
	require.NoError(t, os.WriteFile(secret, []byte(strings.Repeat("s", 40)), 0o600))
	start := func() *agent {
		return env.startAgent("mcp", "--listen", "127.0.0.1:0", "--keep-processes", "--peer-token", secret)
	}
	agent := start()
	s := patient(spec.Default())
	s.Pool.Name, s.Pool.Size, s.Pool.Protocol, s.Pool.MaxInflight = "mcp", 2, spec.ProtocolJSONRPC, 16
	s.Pool.Command = []string{"node",
		filepath.Join(dir, "node_modules/@modelcontextprotocol/server-everything/dist/index.js"), "stdio"}
	s.MCP.Mode, s.MCP.Idle, s.Queue.Timeout = spec.MCPSession, spec.Duration(20*time.Second), spec.Duration(time.Second)
	pool := env.startPool(s)
	gateway := env.gatewayClient("mcp")
	ask := func(method, session, body string) (int, string, string) {
		response, text, err := send(t.Context(), gateway, method, "/mcp/mcp", body, "Mcp-Session-Id", session)
		if err != nil { // the agent is not there
			return 0, err.Error(), ""
		}
		return response.StatusCode, text, response.Header.Get("Mcp-Session-Id")
	}
	initialize := func() (status int, session string) {
		status, _, session = ask("POST", "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{`+
			`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
		return status, session
	}
	echo := func(session, message string) string {
		_, text, _ := ask("POST", session, fmt.Sprintf(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":%q}}}`, message))
		return text
	}
	status, first := initialize()
	require.Equal(t, http.StatusOK, status)
	status, second := initialize()
	require.Equal(t, http.StatusOK, status)
	status, _ = initialize()
	require.Equal(t, http.StatusServiceUnavailable, status, "each worker has its client")
	env.waitFor(pool, "two leases of MCP clients", func(p api.PoolWorkers) bool {
		for _, w := range p.Workers {
			if w.Lease == nil || !strings.HasPrefix(w.Lease.Holder, "mcp:mcp.") {
				return false
			}
		}
		return true
	})
	require.Contains(t, echo(second, "one"), "Echo: one")

	for _, pid := range hostProcesses("mcp") {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	answers := ""
	require.Eventually(t, func() bool { // until the workers are ready again
		answers += echo(second, "two")
		return strings.Contains(answers, "Echo: two")
	}, waitTimeout, 100*time.Millisecond)
	require.Regexp(t, "worker_crashed|is lost", answers, "a call fails, and says so")

	status, _, _ = ask("DELETE", first, "")
	require.Equal(t, http.StatusNoContent, status)
	status, _, _ = ask("DELETE", second, "")
	require.Equal(t, http.StatusNoContent, status)
	env.waitFor(pool, "a new process in place of each that a client had", func(p api.PoolWorkers) bool {
		replaced := 0
		for _, w := range p.Workers {
			if w.State == lifecycle.Ready && w.Lease == nil && w.Incarnation >= 2 {
				replaced++
			}
		}
		return replaced == 2
	})
	require.Eventually(t, func() bool { status, first = initialize(); return status == http.StatusOK }, waitTimeout,
		100*time.Millisecond)
	env.waitFor(pool, "the return of the idle client's process", func(p api.PoolWorkers) bool {
		return p.Workers[0].Lease == nil && p.Workers[1].Lease == nil
	})
	require.Contains(t, echo(first, "three"), "is lost", "the client has returned, its process has not")
	require.Contains(t, echo(first, "four"), "Echo: four")

	// The session outlives its agent, and so does its process if that is handed over.
	again := func(message string) string {
		answers := ""
		require.Eventually(t, func() bool {
			answers += echo(first, message)
			return strings.Contains(answers, "Echo: "+message)
		}, waitTimeout, 100*time.Millisecond)
		return answers
	}
	agent.stop()
	agent = start()
	require.NotContains(t, again("five"), "is lost")
	agent.kill()
	start()
	require.Contains(t, again("six"), "is lost")

	// The gateway of another host serves it there.
	env.startAgent("other", "--listen", "127.0.0.1:0", "--peer-token", secret)
	gateway = env.gatewayClient("other")
	require.NotContains(t, again("seven"), "is lost")
	for _, want := range []int{http.StatusNoContent, http.StatusNotFound} {
		refused := ""
		require.Eventually(t, func() bool { // it may find its peer too slow to ask for a moment, and says so
			status, refused, _ = ask("DELETE", first, "")
			return status != http.StatusServiceUnavailable
		}, waitTimeout, 100*time.Millisecond)
		require.Equal(t, want, status, refused)
	}
}

// The quick start of docs/mcp.md: the server of a client's configuration becomes a pool that the client uses.
func TestAClientsConfigurationBecomesOneURL(t *testing.T) {
	need.Program(t, "node")
	dir := examplesetup.Copy(t, "../../gateway/testdata/mcp")
	config := filepath.Join(dir, ".mcp.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"mcpServers": {"everything": {
		"command": "node_modules/.bin/mcp-server-everything", "args": ["stdio"], "env": {"SECRET": "not in histories"}}}}`), 0o600))
	env := newEnv(t)
	env.startAgent("imported", "--listen", "127.0.0.1:0")
	_, _ = env.ctl(cli.ExitOK, "mcp", "import", config, "--start", "--dir", dir)
	t.Cleanup(func() { env.logHistories(env.client.Pool("everything"), 1) })
	got := outputOf(t, exec.CommandContext(t.Context(), "node", filepath.Join(dir, "client.mjs"),
		env.mcpURL("everything"), spec.MCPSession))
	require.Contains(t, got, `"echo":"Echo: line`)
	for _, id := range []string{api.PoolWorkflowID("everything"), api.WorkerWorkflowID("everything", 0)} {
		events := fmt.Sprint(env.acceptedEvents(id))
		require.Contains(t, events, "everything.env")
		require.NotContains(t, events, "not in histories")
	}
}
