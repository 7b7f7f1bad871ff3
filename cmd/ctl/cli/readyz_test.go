package cli

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestPsShowsWhichGatewaysReachTemporal(t *testing.T) {
	view := exampleView()
	view.Workers[0].Endpoint, view.Workers[1].Endpoint, view.Workers[2].Endpoint = "unix:/a", "unix:/b", "unix:/c"
	view.Workers[1].Host, view.Workers[2].Host = "h2", "h3"
	first := func(r result) string {
		requireCode(t, ExitOK, r)
		line, _, _ := strings.Cut(r.out, "\n")
		return line
	}
	plane := newFakeControlPlane(&fakePool{name: "python", view: view})
	plane.gateways = map[string]string{"unix:/a": "ok", "unix:/b": "lost"}
	require.Equal(t, "Workers (2/4 ready), control plane lost on h2 (calls continue under held leases)", first(ctl(t, plane, "ps", "--timeout", "50ms", "python")))

	var printed struct {
		Workers []map[string]any `json:"workers"`
	}
	r := ctl(t, plane, "ps", "--timeout", "50ms", "python", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(r.out), &printed), r.out)
	require.Equal(t, "ok", printed.Workers[0]["control_plane"])
	require.Equal(t, "lost", printed.Workers[1]["control_plane"])
	require.NotContains(t, printed.Workers[2], "control_plane", "a gateway that does not answer in time says nothing")

	plane.gateways["unix:/b"] = "ok"
	require.Equal(t, "Workers (2/4 ready), control plane ok", first(ctl(t, plane, "ps", "--timeout", "50ms")))
	plane.gateways = nil
	require.Equal(t, "Workers (2/4 ready)", first(ctl(t, plane, "ps", "--timeout", "50ms", "python")))
}

func TestReadyzIsFetchedOverTCPAndUnixSockets(t *testing.T) {
	answer := `{"status":"fenced","host":"h","control_plane":"lost","lost_for_ms":7}`
	status := http.StatusServiceUnavailable
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	})
	tcp := httptest.NewServer(handler)
	defer tcp.Close()
	dir, err := os.MkdirTemp("", "planes") // a socket's path has to be short
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	listener, err := net.Listen("unix", filepath.Join(dir, "gateway.sock"))
	require.NoError(t, err)
	local := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	local.Start()
	defer local.Close()
	for _, endpoint := range []string{tcp.URL, tcp.URL + "/", "unix:" + filepath.Join(dir, "gateway.sock")} {
		plane, err := fetchControlPlane(t.Context(), endpoint)
		require.NoError(t, err, endpoint)
		require.Equal(t, "lost", plane)
	}
	answer, status = `{"code":"unauthorized"}`, http.StatusUnauthorized
	_, err = fetchControlPlane(t.Context(), tcp.URL)
	require.ErrorContains(t, err, "401")
	_, err = fetchControlPlane(t.Context(), "unix:"+filepath.Join(dir, "nobody.sock"))
	require.Error(t, err)
	require.Equal(t, []string{"a", "b"}, gatewayEndpoints([]api.PoolWorkers{{Workers: []api.Worker{{Endpoint: "a"}, {}}}, {Workers: []api.Worker{{Endpoint: "b"}, {Endpoint: "a"}}}}))
}
