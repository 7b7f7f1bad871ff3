package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
	require.Equal(t, "Workers (2/4 ready), control plane lost on h2 (calls continue under held leases)",
		first(ctl(t, plane, "ps", "--timeout", "50ms", "python")))

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

	view.Workers[1].Endpoint, view.Workers[2].Endpoint, plane.requests = "", "unix:/a", nil
	ctl(t, plane, "ps", "--timeout", "50ms", "python")
	require.Equal(t, []string{"control plane of unix:/a"}, plane.requests, "each gateway is asked once")
}
