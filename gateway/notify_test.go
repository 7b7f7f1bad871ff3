package gateway

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/spec"
)

func TestNotificationReachesTheWorkerOfItsLease(t *testing.T) {
	t.Parallel()
	e := open(t, 1)
	lease := e.lease(0, "me")
	e.release(e.file("a"))
	response := e.do("POST", "/v1/leases/"+lease.ID+"/notify/hold", quoted(e.file("a")))
	require.Equal(t, http.StatusAccepted, response.status, "%s", response.body)
	require.Empty(t, response.body)
	e.awaitHeld(e.file("a.began"))
	require.Equal(t, 200, e.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").status, "the worker still serves")
	require.NoError(t, e.gateway.Notify(t.Context(), lease.ID, operator,
		pool.Request{Method: "echo", Body: []byte("x")}))
	require.EqualValues(t, 3, e.gateway.Snapshot().Pools[0].Workers[0].Requests)
}

func TestNotificationNeedsTheNewestLease(t *testing.T) {
	t.Parallel()
	e := open(t, 1)
	lease := e.lease(0, "me")
	require.Equal(t, http.StatusAccepted, e.do("POST", "/v1/leases/"+lease.ID+"/notify/echo", "1").status)
	require.Equal(t, http.StatusOK, e.do("DELETE", "/v1/leases/"+lease.ID, nil).status)
	e.do("POST", "/v1/leases/"+lease.ID+"/notify/echo", "1").requireProblem(t, 409, api.CodeLeaseFenced)
	e.do("POST", "/v1/leases/nonsense/notify/echo", "1").requireProblem(t, 404, api.CodeLeaseNotFound)
	e.do("POST", "/v1/leases/"+lease.ID+"/notify", "1").requireProblem(t, 404, "not_found")
	e.do("POST", "/v1/leases/"+lease.ID+"/notify/", "1").requireProblem(t, 400, api.CodeInvalid)
	e.do("POST", "/v1/leases/"+lease.ID+"/notify/echo", "1", api.HeaderTimeout, "soon").requireProblem(t, 400,
		api.CodeInvalid)
}

func TestProtocolNoneTakesNoNotification(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("testdata/server.py")
	require.NoError(t, err)
	e := open(t, 1, withSpec(func(sp *spec.Spec) {
		sp.Pool.Command, sp.Pool.Protocol, sp.Health.Kind = []string{"python3", script}, spec.ProtocolNone, spec.HealthTCP
	}))
	lease := e.lease(0, "me")
	e.do("POST", "/v1/leases/"+lease.ID+"/notify/x", "1").requireProblem(t, 400, api.CodeInvalid)
	require.Equal(t, 200, e.do("POST", "/v1/leases/"+lease.ID+"/call/x", "1").status)
}
