package gateway

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access/accesstest"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/logging"
	"github.com/tempool/tempool/internal/logging/logtest"
	"github.com/tempool/tempool/internal/need"
)

var addToken, certify = accesstest.AddToken, accesstest.Certify

// tokensFile writes a file with one token, and returns it with the token's secret.
func tokensFile(t *testing.T, pools []string, rights ...string) (path, secret string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "tokens.toml")
	return path, addToken(t, path, "test", pools, rights...)
}

func TestListenerBeyondLoopbackNeedsAuthentication(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, _ := certify(t, dir)
	tokens, _ := tokensFile(t, []string{"*"}, "call")
	for name, c := range map[string]struct {
		listen   string
		security Security
		allowed  bool
	}{
		"loopback":                         {"127.0.0.1:0", Security{}, true},
		"localhost":                        {"localhost:0", Security{}, true},
		"loopback of IPv6":                 {"[::1]:0", Security{}, true},
		"every address":                    {":0", Security{}, false},
		"every address, spelled out":       {"0.0.0.0:0", Security{}, false},
		"every address, token without TLS": {"0.0.0.0:0", Security{TokensFile: tokens}, false},
		"every address, TLS without token": {"0.0.0.0:0", Security{CertFile: cert, KeyFile: key}, false},
		"every address, TLS and token": {"0.0.0.0:0",
			Security{CertFile: cert, KeyFile: key, TokensFile: tokens, Advertise: "https://web-1:7460"}, true},
		"every address, certificates": {"0.0.0.0:0",
			Security{CertFile: cert, KeyFile: key, ClientCAFile: cert, Advertise: "https://web-1:7460"}, true},
		"authorities without a certificate": {"127.0.0.1:0", Security{ClientCAFile: cert}, false},
		"a token file that is not there":    {"127.0.0.1:0", Security{TokensFile: filepath.Join(dir, "none")}, false},
		"a key that is none":                {"127.0.0.1:0", Security{CertFile: cert, KeyFile: cert}, false},
		"no port":                           {"127.0.0.1", Security{}, false},
		"every address, not advertised":     {"0.0.0.0:0", Security{CertFile: cert, KeyFile: key, TokensFile: tokens}, false},
		"one address, TLS and token":        {"10.1.2.3:0", Security{CertFile: cert, KeyFile: key, TokensFile: tokens}, true},
		"advertised host without scheme":    {"127.0.0.1:0", Security{Advertise: "web-1:7460"}, false},
		"advertised path":                   {"127.0.0.1:0", Security{Advertise: "https://web-1/tempool"}, false},
		"advertised token":                  {"127.0.0.1:0", Security{Advertise: "https://s3cret@web-1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newAuthenticator(Config{Listen: c.listen, Security: c.security})
			if c.allowed {
				require.NoError(t, err)
			} else {
				require.Equal(t, api.CodeInvalid, api.CodeOf(err))
				require.NotContains(t, err.Error(), "s3cret")
			}
		})
	}
	_, err := newAuthenticator(Config{Listen: "0.0.0.0:7460"})
	require.ErrorContains(t, err, "--tls-cert and --tls-key, and --tokens or --client-ca", "the error names the flags")
}

// overTCP returns the status of one request.
func overTCP(t *testing.T, client *http.Client, endpoint, path string, headers ...string) int {
	t.Helper()
	return ask(t, client, requestOf(t.Context(), t, "GET", endpoint+path, nil, headers...)).status
}

func clientWith(t *testing.T, config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestWebPageCannotReachALoopbackGateway(t *testing.T) {
	e := parallel(t, 2, plain(t), inflight(4), withConfig(func(c *Config) { c.Listen = "127.0.0.1:0" }))
	client := clientWith(t, nil)
	endpoint := e.gateway.Endpoint()
	require.Equal(t, 200, overTCP(t, client, endpoint, "/v1/pools"))
	require.Equal(t, 403, overTCP(t, client, endpoint, "/v1/pools", "Host", "evil.example"), "DNS rebinding")
	crossing := requestOf(t.Context(), t, "POST", endpoint+"/v1/pools/p/call/echo", strings.NewReader("x"), "Origin",
		"http://evil.example", "Sec-Fetch-Site", "cross-site")
	require.Equal(t, 403, ask(t, client, crossing).status)

	socket := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-Fetch-Mode", "websocket", "Sec-Fetch-Dest",
		"websocket"}
	image := []string{"Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}
	link := []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	frame := []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}
	lease := e.taken(pool.CheckoutRequest{Holder: "me"})
	for _, c := range []struct {
		status          int
		site, path      string
		origin, headers []string
	}{
		{403, "cross-site", "pools/p/call/upgrade", []string{"Origin", "http://evil.example"}, socket},
		{403, "cross-site", "pools/p/workers/1/call/x", nil, image},
		{403, "same-site", "pools/p/call/x", nil, image},
		{403, "cross-site", "pools/p/call/x", nil, frame},
		{403, "", "pools/p/call/upgrade", []string{"Origin", "http://evil.example"}, socket[:4]},
		{200, "cross-site", "pools/p/call/x", nil, link},
		{200, "none", "pools/p/call/x", nil, link},
		{200, "same-origin", "pools/p/call/x", nil, image},
		{101, "same-origin", "pools/p/call/upgrade", []string{"Origin", endpoint}, socket},
		// of a worker's page, whose URL has the token
		{200, "cross-site", "leases/" + lease.ID + "~" + lease.Token + "/call/x", nil, image},
		{101, "cross-site", "leases/" + lease.ID + "~" + lease.Token + "/call/upgrade", []string{"Origin", "null"}, socket},
	} {
		headers := append(append([]string{"Sec-Fetch-Site", c.site}, c.origin...), c.headers...)
		response, err := client.Do(requestOf(t.Context(), t, "GET", endpoint+"/v1/"+c.path, nil, headers...))
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, c.status, response.StatusCode, "GET %s with %q", c.path, headers)
	}
}

func TestSocketIsPrivateAndExclusive(t *testing.T) {
	e := parallel(t, 0)
	info, err := os.Stat(e.file("gw.sock"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Equal(t, "unix:"+e.file("gw.sock"), e.gateway.Endpoint())

	e.config.Logger = slog.New(slog.DiscardHandler)
	second, err := New(e.config)
	require.NoError(t, err)
	require.ErrorIs(t, second.Start(), api.ErrUnavailable)
	require.NoError(t, second.Close(t.Context()))
	require.Equal(t, 200, e.do("GET", "/healthz", nil).status, "the first one still serves")
}

// The health check of the image asks the socket, which has neither TLS nor another address.
func TestTheImageAsksTheSocketForItsHealth(t *testing.T) {
	need.Program(t, "python3")
	e := parallel(t, 0)
	text, err := os.ReadFile("../Dockerfile")
	require.NoError(t, err)
	_, check, _ := strings.Cut(string(text), "\nHEALTHCHECK ")
	_, check, _ = strings.Cut(check, "CMD ")
	for socket, healthy := range map[string]bool{"gw.sock": true, "none.sock": false} {
		var command []string
		require.NoError(t, json.NewDecoder(strings.NewReader(strings.ReplaceAll(check, "/var/lib/tempool/gateway.sock",
			e.file(socket)))).Decode(&command))
		out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
		require.Equal(t, healthy, err == nil, "%s", out)
	}
}

func TestStaleSocketIsReplacedButNoOtherFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	left.SetUnlinkOnClose(false)
	require.NoError(t, left.Close())
	listener, err := listenSocket(path, "")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
	_, err = listenSocket(path, "")
	require.Equal(t, api.CodeInvalid, api.CodeOf(err))
	require.FileExists(t, path)
}

func TestAClientBeyondTheLastConnectionWaitsAndTheLogSaysSo(t *testing.T) {
	var log logtest.Log
	e := parallel(t, 0, withConfig(func(c *Config) {
		c.Limits.Connections, c.Logger = 2, logging.New(&log, slog.LevelInfo)
	}))
	served := func(c *plainClient) <-chan int {
		return background(func() int { a, _ := c.ask(healthRequest); return a.status })
	}
	first, second, third := e.dialPlain(), e.dialPlain(), e.dialPlain()
	require.Equal(t, http.StatusOK, await(t, served(first)))
	require.Equal(t, http.StatusOK, await(t, served(second)))
	late := served(third)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "raise --max-connections") }, timeout, poll)
	require.Empty(t, late, "a third connection was served beside two")
	require.NoError(t, first.conn.Close())
	require.Equal(t, http.StatusOK, await(t, late))
}

func TestSlowRequestIsDisconnected(t *testing.T) {
	e := parallel(t, 1, withConfig(func(c *Config) { c.Limits.HeaderTime, c.Limits.ReadTime = time.Second, time.Second }))
	for name, text := range map[string]string{
		"headers that never end": "POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: x\r\n",
		"a body that never ends": "POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab",
	} {
		t.Run(name, func(t *testing.T) {
			conn := e.dialPlain().conn
			require.NoError(t, errorOf(io.WriteString(conn, text)))
			require.NoError(t, errorOf(io.Copy(io.Discard, conn)), "the gateway disconnects")
		})
	}
	held := e.heldCall("/v1/pools/p", "a")
	began := time.Now()
	require.Eventually(t, func() bool { return time.Since(began) > 1200*time.Millisecond }, timeout, poll)
	e.finish("a", held, "a long call is not a slow request")
}

func TestASocketWhosePathIsTooLongSaysSo(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	require.NoError(t, os.Mkdir(folder, 0o700))
	_, err := listenSocket(filepath.Join(folder, "gateway.sock"), "")
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "use a shorter --state-dir")
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}
