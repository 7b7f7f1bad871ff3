package tempool

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// A gateway that serves no calls says so in the body of a 503.
func TestACheckedGatewayMayServeNoCalls(t *testing.T) {
	status, body :=
		http.StatusServiceUnavailable, `{"status":"fenced","host":"a","control_plane":"lost","lost_for_ms":40000}`
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	})
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	socket := filepath.Join(t.TempDir(), "gateway.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	local := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	local.Start()
	t.Cleanup(local.Close)
	c, err := Dial(t.Context(), Options{Gateways: []string{server.URL}})
	require.NoError(t, err)
	t.Cleanup(c.Close)

	for _, endpoint := range []string{server.URL, server.URL + "/", "unix:" + socket} {
		check := c.CheckGateway(t.Context(), endpoint)
		require.NoError(t, check.Err)
		require.Equal(t, "fenced", check.Status)
		require.Equal(t, "lost", check.ControlPlane)
		require.False(t, check.Clock.IsZero())
	}
	for status, body = range map[int]string{502: "<html>a proxy</html>", 401: `{"code":"unauthorized"}`} {
		err := c.CheckGateway(t.Context(), server.URL).Err
		require.ErrorIs(t, err, api.ErrUnavailable)
		require.ErrorContains(t, err, fmt.Sprint(status))
	}
	require.Error(t, c.CheckGateway(t.Context(), "unix:"+socket+".none").Err)
}
