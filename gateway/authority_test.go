package gateway

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
)

// taken checks a worker out over HTTP.
func (e *env) taken(r pool.CheckoutRequest) api.Lease {
	e.t.Helper()
	lease := e.do("POST", "/v1/pools/p/leases", r).lease(e.t)
	require.Equal(e.t, api.HashLeaseToken(lease.Token), lease.TokenHash)
	return lease
}

func TestALeaseIsUsableByItsTakerOnly(t *testing.T) {
	tokens, bob := tokensFile(t, []string{"*"}, "call", "lease", "read")
	root := addToken(t, tokens, "root", []string{"*"}, "lease", "admin")
	e := parallel(t, 2, withTokens(tokens))
	alice := e.taken(pool.CheckoutRequest{Holder: "alice"})
	path := "/v1/leases/" + alice.ID
	for name, c := range map[string]struct {
		client, path string
		headers      []string
	}{
		"Bob, who read the id in a listing":    {bob, path, nil},
		"Bob with a token of his own":          {bob, path + "~" + api.NewLeaseToken(), nil},
		"Bob with the hash from Temporal":      {bob, path, []string{api.HeaderLeaseToken, alice.TokenHash}},
		"the operator, who has not the token":  {root, path, nil},
		"a token that is far too long":         {bob, path, []string{api.HeaderLeaseToken, longText}},
		"somebody with an empty token in path": {bob, path + "~", nil},
	} {
		t.Run(name, func(t *testing.T) {
			for method, suffix := range map[string]string{"POST": "/call/echo", "PUT": "", "DELETE": "",
				"POST ": "/notify/echo"} {
				refused := e.tcp(strings.TrimSpace(method), c.path+suffix, c.client, "", c.headers...)
				require.Equal(t, 403, refused.status, "%s %s: %s", method, suffix, refused.body)
				require.Equal(t, api.CodeForbidden, refused.problem.Code)
				require.False(t, refused.problem.Started)
			}
		})
	}
	shared := e.tcp("POST", path+"/call/echo", bob, "x", api.HeaderLeaseToken, alice.Token)
	require.Equal(t, 200, shared.status, "the token is the right to use the lease")
	require.Equal(t, 200, e.tcp("PUT", path+"~"+alice.Token, bob, "{}").status)

	_, slot, err := api.ParseWorkerName(alice.Worker)
	require.NoError(t, err)
	bare := e.lease(1-slot, "me") // through Temporal, without a token
	call := "/v1/leases/" + bare.ID + "/call/echo"
	require.Equal(t, 403, e.tcp("POST", call, bob, "x").status)
	require.Equal(t, 403, e.tcp("POST", call, bob, "x", api.HeaderLeaseToken, api.NewLeaseToken()).status)
	require.Equal(t, 200, e.tcp("POST", call, root, "x").status, "an operator")

	listing := e.do("GET", "/v1/workers", nil)
	require.Contains(t, string(listing.body), alice.ID)
	require.NotContains(t, string(listing.body), "token")
	require.Equal(t, 200, e.do("DELETE", path+"~"+alice.Token, nil).status)
}

var longText = strings.Repeat("a", 4096)

func TestALeaseOnAnotherHostNeedsItsTokenToo(t *testing.T) {
	tokens, bob := tokensFile(t, []string{"*"}, "lease")
	e := parallel(t, 0, withTokens(tokens))
	e.control.add("p/7", 3)
	e.control.with("p/7", func(worker *fakeWorker) { worker.host = "there" })
	alice, err := e.control.Checkout(t.Context(), "p/7",
		tempool.CheckoutOptions{Holder: "alice", Token: api.NewLeaseToken()})
	require.NoError(t, err)
	for _, method := range []string{"PUT", "DELETE"} {
		refused := e.tcp(method, "/v1/leases/"+alice.ID+"~"+api.NewLeaseToken(), bob, "")
		require.Equal(t, 403, refused.status, "the workflow knows the token: %s", method)
	}
	for _, method := range []string{"PUT", "DELETE"} {
		require.Equal(t, 200, e.tcp(method, "/v1/leases/"+alice.ID+"~"+alice.Token, bob, "").status)
	}
}
