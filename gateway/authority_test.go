package gateway

import (
	"strconv"
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
	e.ok("DELETE", path+"~"+alice.Token, nil)
}

// Whoever may use the pool may make up the number of a lease, with a token for it.
func TestALeaseThatSomebodyMakesUpEndsNoOther(t *testing.T) {
	e := parallel(t, 1)
	for _, query := range []string{"", "?recorded=true"} {
		madeUp := func(id string) string { return "/v1/leases/" + id + "~" + api.NewLeaseToken() }
		for _, id := range []string{"p.0.1.999999", "p.0.1.9223372036854775807"} {
			require.Equal(t, 200, e.do("DELETE", madeUp(id)+query, nil).status)
		}
		next := api.LeaseID("p", 0, 1, e.seq()+1)
		e.do("POST", madeUp(next)+"/call/echo", "x").requireProblem(t, 404, api.CodeLeaseNotFound)
		e.do("POST", madeUp("p.0.1.0"+strconv.FormatInt(e.seq()+1, 10))+"/call/echo", "x").
			requireProblem(t, 404, api.CodeLeaseNotFound)
		direct := e.lease(0, "me") // without the gateway
		require.Equal(t, next, direct.ID)
		require.Equal(t, 200, e.do("POST", "/v1/leases/"+direct.ID+"/call/echo", "x").status)
		e.do("DELETE", madeUp(direct.ID)+query, nil).requireProblem(t, 403, api.CodeForbidden)
		require.Equal(t, 200, e.do("POST", "/v1/leases/"+direct.ID+"/call/echo", "x").status)
		_, err := e.control.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: direct.ID})
		require.NoError(t, err)
		require.Equal(t, 200, e.do("DELETE", "/v1/leases/"+direct.ID+"?recorded=true", nil).status)

		alice := e.taken(pool.CheckoutRequest{Holder: "alice", WaitMS: timeout.Milliseconds()})
		require.Equal(t, 200, e.do("DELETE", madeUp("p.0.1.999999")+query, nil).status)
		path := "/v1/leases/" + alice.ID + "~" + alice.Token
		require.Equal(t, 200, e.do("POST", path+"/call/echo", "x").status)
		require.Equal(t, 200, e.do("DELETE", path, nil).status)
	}
}

// seq is the number of the newest lease on p/0.
func (e *env) seq() (newest int64) {
	e.control.with("p/0", func(worker *fakeWorker) { newest = worker.seq })
	return newest
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
