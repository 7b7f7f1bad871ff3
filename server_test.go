package tempool

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// A gateway that serves no calls says so in the body of a 503.
func TestACheckedGatewayMayServeNoCalls(t *testing.T) {
	status, body :=
		http.StatusServiceUnavailable, `{"status":"fenced","host":"a","control_plane":"lost","lost_for_ms":40000}`
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	})
	url, local := serving(t, handler), newFakeGateway(t, "unix")
	local.server.Config.Handler = handler
	c := dialed(t, Options{Gateways: []string{url}})

	for _, endpoint := range []string{url, url + "/", local.endpoint} {
		check := c.CheckGateway(t.Context(), endpoint)
		require.NoError(t, check.Err)
		require.Equal(t, "fenced", check.Status)
		require.Equal(t, "lost", check.ControlPlane)
		require.False(t, check.Clock.IsZero())
	}
	for status, body = range map[int]string{502: "<html>a proxy</html>", 401: `{"code":"unauthorized"}`} {
		err := c.CheckGateway(t.Context(), url).Err
		require.ErrorIs(t, err, api.ErrUnavailable)
		require.ErrorContains(t, err, fmt.Sprint(status))
	}
	require.Error(t, c.CheckGateway(t.Context(), local.endpoint+".none").Err)
}
