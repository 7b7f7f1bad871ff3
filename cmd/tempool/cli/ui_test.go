package cli

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
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

func script(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700))
	return path
}

func TestABrowserGetsASignInLinkInAFileOfTheUserAlone(t *testing.T) {
	dir := t.TempDir()
	opened := filepath.Join(dir, "opened")
	for _, name := range []string{"xdg-open", "open"} {
		script(t, filepath.Join(dir, name), "printf '%s' \"$*\" > "+opened+".new && mv "+opened+".new "+opened)
	}
	for name, value := range map[string]string{"PATH": dir + ":" + os.Getenv("PATH"), "DISPLAY": ":0", "HOME": dir,
		"XDG_CACHE_HOME": filepath.Join(dir, "cache")} {
		t.Setenv(name, value)
	}
	for _, page := range []string{"file:///etc/passwd", "--help", "javascript:alert(1)", "http:", "/ui/", "%"} {
		require.ErrorContains(t, openBrowser(page), "not an http or https URL", page)
	}
	require.NoFileExists(t, opened)
	argument := func(page string) string {
		require.NoError(t, openBrowser(page))
		var text []byte
		require.Eventually(t, func() bool { // it is not waited for on a slow machine
			var err error
			text, err = os.ReadFile(opened)
			return err == nil && os.Remove(opened) == nil
		}, time.Minute, 10*time.Millisecond)
		return string(text)
	}
	require.Equal(t, "https://web-1:7460/ui/", argument("https://web-1:7460/ui/"), "no secret")

	address, err := url.Parse(argument("https://web-1:7460/ui/signin?link=s3cret%22%3E"))
	require.NoError(t, err)
	require.Equal(t, "file", address.Scheme)
	require.NotContains(t, address.String(), "s3cret")
	info, err := os.Stat(address.Path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	folder, err := os.Stat(filepath.Dir(address.Path))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), folder.Mode().Perm())
	page, err := os.ReadFile(address.Path)
	require.NoError(t, err)
	require.Contains(t, string(page),
		`<form method="post" action="https://web-1:7460/ui/signin/link"><input type="hidden" name="link" `+
			`value="s3cret&#34;&gt;">`)

	old := time.Now().Add(-2 * staleSignIn)
	require.NoError(t, os.Chtimes(address.Path, old, old))
	argument("https://web-1:7460/ui/signin?link=next")
	files, err := filepath.Glob(filepath.Join(filepath.Dir(address.Path), "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NotEqual(t, address.Path, files[0], "old files are removed")

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "cache")))
	if runtime.GOOS != "darwin" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cache"), nil, 0o600))
		require.Error(t, openBrowser("https://web-1:7460/ui/signin?link=x"), "then the address is printed")
	}
}

func TestTheProgramThatOpensABrowserIsNotWaitedFor(t *testing.T) {
	dir, page := t.TempDir(), "https://web-1:7460/ui/"
	err := openWith(script(t, filepath.Join(dir, "fails"), "exit 3"), page, time.Minute)
	require.Error(t, err, "then the address is printed")
	stays := script(t, filepath.Join(dir, "stays"), `while [ -e "$0" ]; do sleep 0.01; done`)
	require.NoError(t, openWith(stays, page, time.Millisecond))
	require.NoError(t, os.Remove(stays)) // which ends it
}
