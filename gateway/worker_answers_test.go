package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// requireConfined requires that a browser gives the answer an origin of its own, and takes it for nothing but what it
// says it is.
func requireConfined(t *testing.T, a answer) {
	t.Helper()
	require.Contains(t, a.header.Values("Content-Security-Policy"), workerSandbox)
	require.Equal(t, []string{"nosniff"}, a.header.Values("X-Content-Type-Options"))
}

func TestAPageOfAWorkerCannotActAtTheGateway(t *testing.T) {
	t.Parallel()
	e := openPlain(t)
	lease := e.lease(0, "me")
	for _, path := range []string{"/v1/pools/p/call/page", "/v1/pools/p/workers/0/call/page", "/v1/leases/" + lease.ID +
		"/call/page"} {
		e.do("GET", path, nil, "Service-Worker", "script").requireProblem(t, 403, api.CodeForbidden)
	}
	a := e.do("GET", "/v1/leases/"+lease.ID+"/call/page", nil)
	require.Equal(t, 200, a.status)
	requireConfined(t, a)
	require.Contains(t, a.header.Values("Content-Security-Policy"), "default-src 'self'", "its own policy holds, too")
	require.Empty(t, a.header.Values("Service-Worker-Allowed"))
	require.Empty(t, a.header.Values("Clear-Site-Data"))
	require.Equal(t, []string{"mine=1; Path=/"}, a.header.Values("Set-Cookie"))

	frames := open(t, 1)
	a = frames.do("POST", "/v1/pools/p/call/stream", "3")
	require.Equal(t, 200, a.status)
	requireConfined(t, a)
}
