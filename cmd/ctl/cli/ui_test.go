package cli

import (
	"encoding/json"
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
	agent := func(hostname, endpoint, socket string) api.HostVitals {
		return api.HostVitals{Agent: &api.AgentReport{Hostname: hostname, Endpoint: endpoint, Socket: socket}}
	}
	f := newFakeControlPlane()
	f.hosts = []tempool.Host{
		{ID: "far", HeardAt: time.Now(), Vitals: agent("elsewhere", "https://far:7460", "/nowhere")},
		{ID: "gone"},
		{ID: "near", HeardAt: time.Now(), Vitals: agent(own, "http://127.0.0.1:7460", socket)},
	}
	link := tempool.DashboardLink{URL: "http://127.0.0.1:7460/ui/signin?link=x", Name: "uid 0", Rights: []string{"read", "admin"}}
	f.links = map[string]tempool.DashboardLink{"unix:" + socket: link}
	shown := ctl(t, f, "ui")
	requireCode(t, ExitOK, shown)
	require.Equal(t, "opened the dashboard in a browser, as uid 0 with the rights read, admin\n", shown.out)
	require.Equal(t, []string{link.URL}, f.browsed)
	require.Equal(t, "link unix:"+socket, f.requests[len(f.requests)-1])

	f.browsed = nil
	require.Equal(t, link.URL+"\n", ctl(t, f, "ui", "--print").out)
	var printed tempool.DashboardLink
	require.NoError(t, json.Unmarshal([]byte(ctl(t, f, "ui", "-o", "json").out), &printed))
	require.Equal(t, link, printed)
	require.Empty(t, f.browsed)

	f.browseErr = errors.New("there is no screen")
	require.Equal(t, link.URL+"\n", ctl(t, f, "ui").out)

	f.links = nil
	require.Equal(t, "http://127.0.0.1:7460/ui/\n", ctl(t, f, "ui").out, "its page asks for a token")
	f.hosts = nil
	none := ctl(t, f, "ui")
	requireCode(t, ExitFailed, none)
	require.Contains(t, none.err, "no agent is up")
}

func TestABrowserOpensWebPagesOnlyAndIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	program := func(name, script string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700))
		return path
	}
	open := func(program, page string, within time.Duration) error {
		_, err := openWith(program, page, within)
		return err
	}
	opened := filepath.Join(dir, "opened")
	opens := program("opens", "printf %s \"$1\" > "+opened)
	for _, page := range []string{"file:///etc/passwd", "--help", "javascript:alert(1)", "http:", "/ui/", "%"} {
		require.ErrorContains(t, open(opens, page, time.Minute), "no http or https URL", page)
	}
	require.NoFileExists(t, opened)
	page := "https://web-1:7460/ui/signin?link=x"
	require.NoError(t, open(opens, page, time.Minute))
	text, err := os.ReadFile(opened)
	require.NoError(t, err)
	require.Equal(t, page, string(text))
	require.Error(t, open(program("fails", "exit 3"), page, time.Minute), "then the address is printed")

	stays := program("stays", `while [ -e "$0" ]; do sleep 0.01; done`)
	ended, err := openWith(stays, page, time.Millisecond)
	require.NoError(t, err)
	require.NotNil(t, ended)
	require.NoError(t, os.Remove(stays))
	<-ended
}
