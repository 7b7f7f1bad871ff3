package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/spec"
)

// plain makes the workers a program of protocol none.
func plain(t *testing.T) option {
	script, err := filepath.Abs("testdata/server.py")
	require.NoError(t, err)
	return withSpec(func(sp *spec.Spec) {
		sp.Pool.Command, sp.Pool.Protocol, sp.Health.Kind = []string{"python3", script}, spec.ProtocolNone, spec.HealthTCP
	})
}

func TestProtocolNonePassesEveryMethodAndNoDotSegments(t *testing.T) {
	e := parallel(t, 1, plain(t), inflight(4))
	for _, method := range []string{"GET", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "HEAD"} {
		a := e.do(method, "/v1/pools/p/call/echo/"+method+"?q=1", nil)
		require.Equal(t, 200, a.status, "%s: %s", method, a.body)
		require.Equal(t, method, a.header.Get("X-Method"))
	}
	for _, path := range []string{"a/../secret", "%2e%2e/secret", "a/%2E%2e/%2e%2e/secret", "a%2f..%2fsecret", "./secret",
		"%2e", "a/.."} {
		for _, method := range []string{"GET", "POST"} {
			e.do(method, "/v1/pools/p/call/"+path, nil).requireProblem(t, 404, codeNotFound)
		}
	}
	e.ok("GET", "/v1/pools/p/call/.well-known/..x/x..", nil)
}

// upgrade opens an upgraded connection to a worker of protocol none under a lease.
func (e *env) upgrade(path string) (net.Conn, *bufio.Reader) {
	e.t.Helper()
	c := e.dialPlain()
	a := c.mustAsk(e.t, "GET "+path+
		"/call/upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	require.Equal(e.t, http.StatusSwitchingProtocols, a.status)
	return c.conn, c.in
}

func TestProtocolNonePassesUpgradesUntilTheLeaseIsSucceeded(t *testing.T) {
	e := parallel(t, 1, plain(t), inflight(4))
	alice := e.taken(pool.CheckoutRequest{Holder: "alice"})
	conn, in := e.upgrade("/v1/leases/" + alice.ID + "~" + alice.Token)
	for _, text := range []string{"one\n", "two\n"} {
		require.NoError(t, errorOf(io.WriteString(conn, text)))
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, strings.ToUpper(text), line)
	}
	// behind the gateway's back
	require.NoError(t, errorOf(e.control.CheckinNow(context.Background(), api.CheckinRequest{LeaseID: alice.ID})))
	bob := e.lease(0, "bob")
	e.ok("POST", "/v1/leases/"+bob.ID+"/call/x", "y")
	closed := background(func() error { _, err := in.ReadString('\n'); return err })
	require.Error(t, await(t, closed), "Alice's connection ends when Bob's lease counts")
	e.do("GET", "/v1/leases/"+alice.ID+"~"+alice.Token+"/call/x", nil).requireProblem(t, 409, api.CodeLeaseFenced)
}

// requireConfined requires that a browser gives the answer an origin of its own, and takes it for nothing but what it
// says it is.
func requireConfined(t *testing.T, a answer) {
	t.Helper()
	require.Contains(t, a.header.Values("Content-Security-Policy"), workerSandbox)
	require.Equal(t, []string{"nosniff"}, a.header.Values("X-Content-Type-Options"))
}

func TestAPageOfAWorkerCannotActAtTheGateway(t *testing.T) {
	e := parallel(t, 1, plain(t), inflight(4))
	lease := e.lease(0, "me")
	for _, path := range []string{"/v1/pools/p/call/page", "/v1/pools/p/workers/0/call/page", "/v1/leases/" + lease.ID +
		"/call/page"} {
		e.do("GET", path, nil, "Service-Worker", "script").requireProblem(t, 403, api.CodeForbidden)
	}
	a := e.ok("GET", "/v1/leases/"+lease.ID+"/call/page", nil)
	requireConfined(t, a)
	require.Contains(t, a.header.Values("Content-Security-Policy"), "default-src 'self'", "its own policy holds, too")
	require.Empty(t, a.header.Values("Service-Worker-Allowed"))
	require.Empty(t, a.header.Values("Clear-Site-Data"))
	require.Equal(t, []string{"mine=1; Path=/"}, a.header.Values("Set-Cookie"))
}

func TestAWorkerCannotPutTheGatewaysSocketInThePlaceOfItsOwn(t *testing.T) {
	e := parallel(t, 1, plain(t), withSpecEnv("LISTEN", "socket"))
	e.ok("POST", "/v1/pools/p/call/own", "x")
	e.ok("POST", "/v1/pools/p/call/link", e.file("gw.sock"))
	for method, path := range map[string]string{"GET": "v1/pools", "POST": "ui/links"} { // with the rights of the agent
		e.do(method, "/v1/pools/p/call/"+path, "").requireProblem(t, 502, api.CodeWorkerCrashed)
	}
}
