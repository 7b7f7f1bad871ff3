package gateway

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/dispatch"
	"github.com/tempool/tempool/spec"
)

func TestANotificationReachesTheWorkerOfTheLeaseAndIsNotAnswered(t *testing.T) {
	w := open(t, 1)
	lease := w.lease(0, "me")
	w.touch(w.file("a"))
	told := w.do("POST", "/v1/leases/"+lease.ID+"/notify/hold", quoted(w.file("a")))
	require.Equal(t, http.StatusAccepted, told.status, "%s", told.body)
	require.Empty(t, told.body)
	w.awaitFile(w.file("a.began"))
	require.Equal(t, 200, w.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").status, "the worker goes on serving")
	require.NoError(t, w.gateway.Notify(t.Context(), lease.ID, dispatch.Request{Method: "echo", Body: []byte("x")}))
	require.EqualValues(t, 3, w.gateway.Snapshot().Pools[0].Workers[0].Requests)
}

func TestANotificationNeedsTheNewestLeaseOfItsWorker(t *testing.T) {
	w := open(t, 1)
	lease := w.lease(0, "me")
	require.Equal(t, http.StatusAccepted, w.do("POST", "/v1/leases/"+lease.ID+"/notify/echo", "1").status)
	require.Equal(t, http.StatusOK, w.do("DELETE", "/v1/leases/"+lease.ID, nil).status)
	w.do("POST", "/v1/leases/"+lease.ID+"/notify/echo", "1").refusedWith(t, 409, api.CodeLeaseFenced)
	w.do("POST", "/v1/leases/nonsense/notify/echo", "1").refusedWith(t, 404, api.CodeLeaseNotFound)
	w.do("POST", "/v1/leases/"+lease.ID+"/notify", "1").refusedWith(t, 404, "not_found")
	w.do("POST", "/v1/leases/"+lease.ID+"/notify/", "1").refusedWith(t, 400, api.CodeInvalid)
	w.do("POST", "/v1/leases/"+lease.ID+"/notify/echo", "1", api.HeaderTimeout, "soon").refusedWith(t, 400, api.CodeInvalid)
}

func TestAPlainHTTPServerTakesNoNotification(t *testing.T) {
	script, err := filepath.Abs("testdata/server.py")
	require.NoError(t, err)
	w := open(t, 1, withSpec(func(sp *spec.Spec) {
		sp.Pool.Command, sp.Pool.Protocol, sp.Health.Kind = []string{"python3", script}, spec.ProtocolNone, spec.HealthTCP
	}))
	lease := w.lease(0, "me")
	w.do("POST", "/v1/leases/"+lease.ID+"/notify/x", "1").refusedWith(t, 400, api.CodeInvalid)
	require.Equal(t, 200, w.do("POST", "/v1/leases/"+lease.ID+"/call/x", "1").status)
}
