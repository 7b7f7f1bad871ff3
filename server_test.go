package tempool

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// A gateway that serves no calls says so in the body of a 503.
func TestACheckedGatewayMayServeNoCalls(t *testing.T) {
	status, body := http.StatusServiceUnavailable, `{"status":"fenced","host":"a","control_plane":"lost","lost_for_ms":40000}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	c, err := Dial(t.Context(), Options{Gateways: []string{server.URL}})
	require.NoError(t, err)
	t.Cleanup(c.Close)

	check := c.CheckGateway(t.Context(), server.URL)
	require.NoError(t, check.Err)
	require.Equal(t, "fenced", check.Status)
	require.Equal(t, "lost", check.ControlPlane)
	require.False(t, check.Clock.IsZero())

	status, body = http.StatusBadGateway, "<html>a proxy</html>"
	check = c.CheckGateway(t.Context(), server.URL)
	require.ErrorIs(t, check.Err, api.ErrUnavailable)
	require.ErrorContains(t, check.Err, "502")
}
