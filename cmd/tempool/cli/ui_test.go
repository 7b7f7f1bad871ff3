package cli

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

func TestTheDashboardOpensAtAnAgentOfThisMachine(t *testing.T) {
	own, err := os.Hostname()
	require.NoError(t, err)
	socket := filepath.Join(t.TempDir(), "gateway.sock")
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	agent := func(hostname, endpoint, socket string) api.HostHeartbeat {
		return api.HostHeartbeat{Agent: &api.AgentReport{Hostname: hostname, Endpoint: endpoint, Socket: socket}}
	}
	f := newFakeControlPlane()
	f.hosts = []tempool.Host{
		{ID: "far", HeardAt: time.Now(), Heartbeat: agent("elsewhere", "https://far:7460", "/nowhere")},
		{ID: "gone"},
		{ID: "near", HeardAt: time.Now(), Heartbeat: agent(own, "http://127.0.0.1:7460", socket)},
	}
	link := tempool.DashboardLink{URL: "http://127.0.0.1:7460/ui/signin?link=x", Name: "uid 0",
		Rights: []string{"read", "admin"}}
	f.links = map[string]tempool.DashboardLink{"unix:" + socket: link}
	shown := succeed(t, f, "ui")
	require.Equal(t, "opened the dashboard in a browser, as uid 0 with the rights read, admin\n", shown.out)
	require.Equal(t, []string{link.URL}, f.browsed)
	require.Equal(t, "link unix:"+socket, f.requests[len(f.requests)-1])

	f.browsed = nil
	require.Equal(t, link.URL+"\n", ctl(t, f, "ui", "--print").out)
	require.Equal(t, link, decode[tempool.DashboardLink](t, ctl(t, f, "ui", "-o", "json")))
	require.Empty(t, f.browsed)

	f.browseErr = errors.New("no display is available")
	require.Equal(t, link.URL+"\n", ctl(t, f, "ui").out)

	f.links = nil
	require.Equal(t, "http://127.0.0.1:7460/ui/\n", ctl(t, f, "ui").out, "its page asks for a token")
	f.hosts = nil
	none := fail(t, f, "ui")
	require.Contains(t, none.err, "no running agent serves a dashboard")
}
