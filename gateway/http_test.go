package gateway

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/spec"
)

func TestUnknownRouteIsAProblem(t *testing.T) {
	t.Parallel()
	e := open(t, 0)
	for _, path := range []string{"/", "/v1", "/v1/pools/p/call", "/v2/pools", "/v1/pools/", "/v1/leases", "//v1/pools",
		"/v1/./pools", "/v1/pools/p/call/../x"} {
		e.do("GET", path, nil).requireProblem(t, 404, codeNotFound)
	}
	a := e.do("GET", "/v1/pools/p/call/echo", nil)
	a.requireProblem(t, 405, codeMethodNotAllowed)
	require.Equal(t, "POST", a.header.Get("Allow"))
	a = e.do("PATCH", "/v1/leases/p.0.1.1", nil)
	a.requireProblem(t, 405, codeMethodNotAllowed)
	require.Equal(t, "PUT, DELETE", a.header.Get("Allow"))
}

func TestPoolsAndWorkersAreListedWithTheirStates(t *testing.T) {
	t.Parallel()
	e := open(t, 2)
	e.lease(1, "me")
	var pools []map[string]any
	require.NoError(t, json.Unmarshal(e.do("GET", "/v1/pools", nil).body, &pools))
	require.Len(t, pools, 1)
	var pool map[string]any
	require.NoError(t, json.Unmarshal(e.do("GET", "/v1/pools/p", nil).body, &pool))
	for _, p := range []map[string]any{pools[0], pool} {
		for _, w := range p["workers"].([]any) {
			delete(w.(map[string]any), "as_of") // when it was asked
			if lease, leased := w.(map[string]any)["lease"].(map[string]any); leased {
				delete(lease, "ttl_ms")
			}
		}
	}
	require.Equal(t, pools[0], pool)
	var workers []map[string]any
	require.NoError(t, json.Unmarshal(e.do("GET", "/v1/workers", nil).body, &workers))
	require.Len(t, workers, 2)
	require.Equal(t, "ready", workers[0]["state"])
	require.Equal(t, "busy", workers[1]["state"])
	e.do("GET", "/v1/pools/nope", nil).requireProblem(t, 404, "pool_not_found")
	e.control.setDown(true)
	e.do("GET", "/v1/pools", nil).requireProblem(t, 503, "unavailable")
}

func TestAddedRoutesAreProtected(t *testing.T) {
	t.Parallel()
	e := open(t, 0, withConfig(func(c *Config) { c.Listen = "127.0.0.1:0" }))
	e.gateway.Handle("GET /extra", http.HandlerFunc(func(e http.ResponseWriter, _ *http.Request) { e.WriteHeader(204) }))
	client := clientWith(t, nil)
	require.Equal(t, 204, overTCP(t, client, e.gateway.Endpoint(), "/extra"))
	require.Equal(t, 403, overTCP(t, client, e.gateway.Endpoint(), "/extra", "Host", "evil.example"))
}

// FuzzHTTP sends arbitrary bytes. The gateway must answer with HTTP or disconnect, and continue to serve.
func FuzzHTTP(f *testing.F) {
	for _, seed := range []string{
		"POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi",
		"POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		"POST /v1/pools/p/leases HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n{\"holder\":\"me\",\"ttl_ms\":\"soon\"}  ",
		"POST /v1/leases/p.0.1.1/call/%2e%2e/%00 HTTP/1.1\r\nHost: x\r\nTempool-Timeout: 5\r\n\r\n",
		"PUT /v1/leases/p.0.1.9223372036854775808 HTTP/1.1\r\nHost: x\r\n\r\n",
		"DELETE /v1/leases/..... HTTP/1.0\r\n\r\n",
		"POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: x\r\nTempool-Priority: -1\r\nContent-Length: 99999999999\r\n\r\n",
		"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\nGET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	} {
		f.Add([]byte(seed))
	}
	// should the bytes spell crash
	quick := withSpec(func(sp *spec.Spec) { sp.Queue.Timeout = spec.Duration(50 * time.Millisecond) })
	e := open(f, 1, quick, withConfig(func(c *Config) {
		c.Limits.HeaderTime, c.Limits.ReadTime = 50*time.Millisecond,
			100*time.Millisecond
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		conn, err := net.Dial("unix", e.file("gw.sock"))
		require.NoError(t, err)
		defer conn.Close()
		_, _ = conn.Write(data) // the gateway may have hung up
		require.NoError(t, conn.(*net.UnixConn).CloseWrite())
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(timeout)))
		in := bufio.NewReader(conn)
		if first, err := in.Peek(1); err == nil {
			require.Equal(t, byte('H'), first[0])
			response, err := http.ReadResponse(in, nil)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			if response.StatusCode >= 400 && err == nil &&
				strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") {
				var p Problem
				require.NoError(t, json.Unmarshal(body, &p))
				require.Equal(t, response.StatusCode, p.Status)
			}
			if response.StatusCode == 500 {
				require.Contains(t, string(body), `"code":"worker_error"`, "the gateway itself never fails")
			}
		}
		e.t = t
		require.Equal(t, 200, e.do("GET", "/healthz", nil).status)
	})
}
