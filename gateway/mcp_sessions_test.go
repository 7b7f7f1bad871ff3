package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/mcp"
	"github.com/tempool/tempool/gateway/peer"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/spec"
)

// asPrincipals opens modernServer as a legacy server for two principals, with these tokens.
func asPrincipals(t *testing.T, workers int, mode string, options ...option) (e *env, one, two string) {
	tokens, one := tokensFile(t, []string{"*"}, "call")
	two = addToken(t, tokens, "two", []string{"*"}, "call")
	return openModern(t, workers, mode, append([]option{withTokens(tokens)}, options...)...), one, two
}

// mcpTool is a call of a tool with the id 1.
func mcpTool(name, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name,
		arguments)
}

// mcpAs sends a message for the client with a token, by TCP.
func (e *env) mcpAs(token, session, body string, headers ...string) answer {
	e.t.Helper()
	return e.tcp("POST", "/mcp/p", token, body, append([]string{"Content-Type", "application/json", "Mcp-Session-Id",
		session}, headers...)...)
}

// awaitIdle waits until no client of MCP has a session in memory, once each has been idle for mcp.idle.
func (e *env) awaitIdle() {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		e.gateway.mcp.Check(time.Now().Add(time.Hour))
		return len(e.gateway.MCPSessions()) == 0
	}, timeout, poll)
}

// A client that returns at the moment at which its session counts as idle has it still.
func TestAClientOfMCPMayReturnAtAnyTime(t *testing.T) {
	e := openModern(t, 1, spec.MCPShared, legacy(func(*spec.Spec) {}))
	session := e.initialize()
	ctx, cancel := context.WithCancel(t.Context())
	checked := background(func() error {
		for ctx.Err() == nil {
			e.gateway.mcp.Check(time.Now().Add(time.Hour))
		}
		return ctx.Err()
	})
	for range 500 {
		var clients [8]<-chan answer
		for i := range clients {
			clients[i] = background(func() answer {
				return e.mcp("POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, session...)
			})
		}
		for _, client := range clients {
			got := await(t, client)
			require.Equal(t, 200, got.status, "%s", got.body)
		}
	}
	cancel()
	require.Error(t, await(t, checked))
}

// A process that an MCP client has to itself says whose it is and since when, also after an idle time.
func TestWhichClientOfMCPHasAProcess(t *testing.T) {
	e, one, _ := asPrincipals(t, 2, spec.MCPSession, legacy(func(*spec.Spec) {}))
	client := func() (found *api.MCPClient) {
		for slot := range 2 {
			if c := e.gateway.MCPClient(api.WorkerName("p", slot), 1); c != nil {
				require.Nil(t, found)
				found = c
			}
		}
		return found
	}
	require.Nil(t, client())
	before := time.Now()
	session := e.mcpAs(one, "", mcpInitialize).header.Get("Mcp-Session-Id")
	first := client()
	require.Equal(t, "token test", first.Principal)
	require.WithinRange(t, first.Since, before, time.Now())
	require.Equal(t, map[string]int{"p": 1}, e.gateway.MCPSessions())
	e.awaitIdle()
	require.Nil(t, client())
	require.Equal(t, 200, e.mcpAs(one, session, mcpTool("pid", "{}")).status)
	require.Equal(t, first, client())
}

// The next agent continues with the process of a client that is silent meanwhile, unless another host does without it.
func TestTheProcessOfASilentClientOfMCPOutlivesItsAgent(t *testing.T) {
	t.Parallel()
	store := embedded.InMemory(sessions.Config{})
	servers := []option{withModern(t, spec.MCPSession), legacy(func(sp *spec.Spec) {
		sp.Lease.TTL, sp.Lease.MaxTTL = spec.Duration(3*time.Second), spec.Duration(10*time.Minute)
	}), withStore(store)}
	e := open(t, 1, servers...)
	session := e.initialize()
	require.NoError(t, e.gateway.Leave(t.Context()))
	renewed := e.control.count("renew")
	require.Eventually(t, func() bool { return e.control.count("renew") > renewed }, timeout, poll, "calls are in flight")
	require.NoError(t, e.gateway.Close(t.Context()))
	lasts := func() (ms int64) {
		e.control.with("p/0", func(w *fakeWorker) { ms = w.lease.TTLMS })
		return ms
	}
	require.Equal(t, e.spec.Lease.MaxTTL.D().Milliseconds(), lasts())

	other := openHere(t, e, 0, append(servers, withConfig(func(c *Config) { c.HostID = "other" }))...)
	other.start(1, 1)
	require.Contains(t, string(other.mcp("POST", mcpTool("pid", "{}"), session...).body), "is lost")
	require.Eventually(t, func() bool { return lasts() == e.spec.Lease.TTL.D().Milliseconds() }, timeout, poll)
}

// A gateway that closes waits no longer than it may for Temporal, and not at all while Temporal is known to be lost.
func TestAGatewayOfMCPClosesWithoutTemporal(t *testing.T) {
	t.Parallel()
	for _, down := range []bool{false, true} {
		e := open(t, 1, withModern(t, spec.MCPSession), legacy(func(*spec.Spec) {}))
		var reasons []error
		ctx, cancel := context.WithCancel(t.Context())
		e.control.renew = func(asked context.Context) {
			cancel()
			<-asked.Done()
			reasons = append(reasons, asked.Err())
		}
		e.initialize()
		e.control.setDown(down)
		require.Eventually(t, func() bool { return e.gateway.Health().ControlPlane != down }, timeout, poll)
		require.NoError(t, e.gateway.Close(ctx))
		if cancel(); down {
			require.Empty(t, reasons)
		} else {
			require.Equal(t, []error{context.Canceled}, reasons)
		}
	}
}

// A client that may read and write sessions reaches none of MCP by that, and no record extends another one's lease.
func TestClientsCannotWriteTheRecordsOfMCP(t *testing.T) {
	store := embedded.InMemory(sessions.Config{})
	tokens, one := tokensFile(t, []string{"*"}, "call")
	thief := addToken(t, tokens, "thief", []string{"*"}, "call", "sessions")
	e := openModern(t, 2, spec.MCPSession, withTokens(tokens), legacy(func(*spec.Spec) {}), withStore(store))
	session := e.mcpAs(one, "", mcpInitialize).header.Get("Mcp-Session-Id")
	e.awaitIdle()
	ids, err := store.IDs(t.Context())
	require.NoError(t, err)
	require.Len(t, ids, 1)
	kept, err := store.Peek(t.Context(), ids)
	require.NoError(t, err)
	stolen := strings.Replace(string(kept[0].Metadata["mcp"]), "token test", "token thief", 1)
	body := `{"metadata":{"mcp":` + stolen + `}}`
	backup := string(e.do("GET", exportPath, nil).body)
	require.NotContains(t, backup, session)
	require.NotContains(t, string(e.do("GET", "/v1/sessions", nil).body), session)
	line, err := json.Marshal(kept[0])
	require.NoError(t, err)
	backup = strings.Replace(backup, "\n", "\n"+strings.Replace(string(line), `"version":1`, `"version":9`, 1)+"\n", 1)
	e.do("POST", importPath, strings.Replace(backup, `"sessions":0`, `"sessions":1`, 1)).requireProblem(t, 400,
		api.CodeInvalid)
	for _, method := range []string{"GET", "PUT", "PATCH", "DELETE"} {
		require.Equal(t, 400, e.tcp(method, "/v1/sessions/"+ids[0], thief, body).status, method)
	}
	require.Equal(t, 201, e.tcp("PUT", "/v1/sessions/"+session, thief, body).status, "it is no record")
	require.Equal(t, 404, e.mcpAs(thief, session, mcpTool("pid", "{}")).status)

	lease := e.lease(1, "another")
	for _, host := range []string{"here", "gone"} { // whoever has written it
		record := fmt.Appendf(nil, `{"pool":"p","principal":"token thief","host":%q,"lease":%q}`, host, lease.ID)
		require.NoError(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "mcp:" + host + ".forged",
			Metadata: map[string]json.RawMessage{"mcp": record}})))
		require.Contains(t, string(e.mcpAs(thief, host+".forged", mcpTool("pid", "{}")).body), "is lost")
		e.awaitIdle()
	}
	require.NoError(t, e.gateway.Close(t.Context()))
	e.control.with("p/1", func(w *fakeWorker) { require.Equal(t, lease, w.lease) })
}

// Where gateways need no proof, a program of this machine that says to be one gets no session of MCP of the client that
// it names, unless it may have that anyway.
func TestAForgedNameIsNotThatOfAClientOfMCP(t *testing.T) {
	e := openModern(t, 2, spec.MCPSession, legacy(func(*spec.Spec) {}),
		withConfig(func(c *Config) { c.Listen = "127.0.0.1:0" }))
	overTCP := e.mcpAs("", "", mcpInitialize).header.Get("Mcp-Session-Id")
	for name, c := range map[string]struct {
		session string
		status  int
	}{fmt.Sprintf("uid %d", os.Getuid()): {e.initialize()[1], 404}, "127.0.0.1": {overTCP, 200}} {
		text, err := json.Marshal(peer.Caller{From: "there", To: "here", Name: name, Rights: access.Client})
		require.NoError(t, err)
		a := e.mcpAs("", c.session, mcpTool("pid", "{}"), api.HeaderForwarded, base64.RawURLEncoding.EncodeToString(text))
		require.Equal(t, c.status, a.status, "%s: %s", name, a.body)
	}
}

func legacy(change func(*spec.Spec)) option {
	return withSpec(func(sp *spec.Spec) {
		sp.Pool.Command = append(sp.Pool.Command, "legacy")
		change(sp)
	})
}

// A principal has no more sessions than its limit, whatever the other one has, and no more idle ones.
func TestThePrincipalsOfMCPShareThePoolsSessions(t *testing.T) {
	store := embedded.InMemory(sessions.Config{})
	e, one, two := asPrincipals(t, 1, spec.MCPShared, legacy(func(sp *spec.Spec) {
		sp.MCP.MaxSessions, sp.MCP.MaxSessionsPerPrincipal = 3, 2
	}), withStore(store))
	begin := func(token string) answer { return e.mcpAs(token, "", mcpInitialize) }
	var last string
	for range 2 {
		answer := begin(one)
		require.Equal(t, 200, answer.status)
		last = answer.header.Get("Mcp-Session-Id")
	}
	refused := begin(one)
	require.Equal(t, 503, refused.status, "mcp.max_sessions_per_principal")
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Equal(t, 200, begin(two).status)
	require.Equal(t, 503, begin(two).status, "mcp.max_sessions")

	e.awaitIdle()
	for range 2 { // one that returns is no further idle one
		require.Equal(t, 200, e.mcpAs(one, last, mcpTool("pid", "{}")).status)
		e.awaitIdle()
	}
	for range 2 {
		require.Equal(t, 200, begin(one).status)
	}
	e.awaitIdle()
	require.Eventually(t, func() bool {
		n, err := store.Count(t.Context())
		return err == nil && n == 3
	}, timeout, poll, "two of the first principal, and that of the second")
	require.Equal(t, 404, e.mcpAs(one, last, mcpTool("pid", "{}")).status)
	require.Equal(t, mcp.Counts{}, e.gateway.Snapshot().MCP["p"])
}

// Streams of clients without sessions have the same limit.
func TestThePrincipalsOfMCPShareThePoolsListeners(t *testing.T) {
	e := openModern(t, 1, spec.MCPShared, withSpec(func(sp *spec.Spec) { sp.MCP.MaxSessionsPerPrincipal = 1 }))
	body := modernBody("subscriptions/listen", `,"notifications":{}`)
	e.stream(body, "subscriptions/listen", "")
	require.Eventually(t, func() bool { return e.gateway.Snapshot().MCP["p"].Streams == 1 }, timeout, poll)
	a := e.mcp("POST", body, modernHeaders("subscriptions/listen", "")...)
	require.Equal(t, 503, a.status)
	require.Contains(t, string(a.body), "mcp.max_sessions_per_principal")
}

// A page of an origin of the spec is a client of a pool; a browser asks first, without a token.
func TestPagesOfOtherOriginsAreClientsOfMCP(t *testing.T) {
	e, token, _ := asPrincipals(t, 1, spec.MCPShared, legacy(func(sp *spec.Spec) {
		sp.MCP.Origins = []string{"https://chat.example"}
	}))
	chat := []string{"Origin", "https://chat.example", "Sec-Fetch-Site", "cross-site"}
	preflight := func(headers ...string) answer {
		return ask(t, http.DefaultClient, requestOf(t.Context(), t, "OPTIONS", e.gateway.Endpoint()+"/mcp/p", nil,
			headers...))
	}
	asked := preflight(append(chat, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers",
		"authorization,mcp-session-id")...)
	require.Equal(t, 204, asked.status)
	require.Equal(t, "https://chat.example", asked.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "authorization,mcp-session-id", asked.header.Get("Access-Control-Allow-Headers"))
	require.Equal(t, 401, preflight().status, "no browser asks so")
	for _, name := range []string{"tempool-forwarded", "tempool-peer-token"} { // no page is a gateway
		asked = preflight(append(chat, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers",
			"content-type,"+name)...)
		require.Empty(t, asked.header.Values("Access-Control-Allow-Headers"))
	}

	a := e.mcpAs(token, "", mcpInitialize, chat...)
	require.Equal(t, 200, a.status, "%s", a.body)
	require.Equal(t, "https://chat.example", a.header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, a.header.Get("Access-Control-Expose-Headers"), "Mcp-Session-Id")
	require.Equal(t, 401, e.mcpAs("none", "", mcpInitialize, chat...).status)
	a = e.mcpAs(token, "", mcpInitialize, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	require.Equal(t, 403, a.status)
	require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
}
