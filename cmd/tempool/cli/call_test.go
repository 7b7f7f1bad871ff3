package cli

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// fakeCalls is a control plane with pool hello, whose gateway echoes calls in two chunks; the method crash ends after
// the first.
func fakeCalls(t *testing.T) *fakeControlPlane {
	f := newFakeControlPlane(&fakePool{name: "hello"})
	f.pools["hello"].gateway = startGateway(t, "tcp", func(w http.ResponseWriter, r *http.Request) {
		f.record(r.URL.Path + " for " + r.Header.Get(api.HeaderSession))
		body, _ := io.ReadAll(r.Body)
		w.Header().Set(api.HeaderWorker, "hello/0")
		w.Header().Set(api.HeaderIncarnation, "4")
		half := len(body) / 2
		_, _ = w.Write(body[:half])
		_ = http.NewResponseController(w).Flush()
		if path.Base(r.URL.Path) == "crash" {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(body[half:])
	})
	return f
}

func TestCallPrintsTheAnswerOfAPoolOrOfOneWorkerUnchanged(t *testing.T) {
	f := fakeCalls(t)
	r := succeed(t, f, "call", "hello", "tools/greet", `{"name": "you"}`, "--session", "anna")
	require.Equal(t, `{"name": "you"}`, r.out)
	require.Equal(t, []string{"/v1/pools/hello/call/tools/greet for anna"}, f.requests)
	require.Equal(t, "from standard input", ctl(t, f, "call", "hello", "greet", "-").out)
	require.Empty(t, ctl(t, f, "call", "hello", "greet").out)

	f.requests = nil
	succeed(t, f, "call", "hello/7", "greet")
	require.Equal(t, []string{"/v1/pools/hello/workers/7/call/greet for "}, f.requests)
	requireCode(t, ExitUsage, ctl(t, f, "call", "hello/x", "greet"))
}

func TestCallWithJSONNamesTheWorker(t *testing.T) {
	f := fakeCalls(t)
	for body, want := range map[string]string{
		`{"a":[1]}`:   `"result": {"a": [1]}`,
		"plain text":  `"text": "plain text"`,
		"\xff\x00raw": `"base64": "/wByYXc="`,
	} {
		r := succeed(t, f, "call", "hello", "greet", body, "-o", "json")
		require.JSONEq(t, `{"worker": "hello/0", "incarnation": 4, "endpoint": "`+f.pools["hello"].gateway+
			`", "took_ms": 0, `+want+`}`, r.out)
	}
}

func TestAFailedCallExitsWith1AndItsCode(t *testing.T) {
	f := fakeCalls(t)
	r := fail(t, f, "call", "hello", "crash", "1234")
	require.Equal(t, "12", r.out, "what came before is not taken back")
	require.Contains(t, r.err, "connection lost while reading the answer")
	asJSON := ctl(t, f, "call", "hello", "crash", "1234", "-o", "json")
	require.Equal(t, "unavailable", failure(t, asJSON).Code)
	require.Empty(t, asJSON.out)

	f.dialErr = api.Errorf(api.CodeUnavailable, "no Temporal server answers at x")
	r = fail(t, f, "call", "hello", "greet")
	require.Contains(t, r.err, "--gateway http://127.0.0.1:7460")
	require.Equal(t, "unavailable", failure(t, ctl(t, f, "ps", "-o", "json")).Code)
}

// startGateway starts an HTTP server as a gateway, on TCP or on a Unix socket, and returns its endpoint.
func startGateway(t *testing.T, network string, handle http.HandlerFunc) string {
	server := httptest.NewUnstartedServer(handle)
	t.Cleanup(server.Close)
	if network == "tcp" {
		server.Start()
		return server.URL
	}
	path := filepath.Join(t.TempDir(), "g.sock")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	require.NoError(t, server.Listener.Close())
	server.Listener = listener
	server.Start()
	return "unix:" + path
}

// answering starts a gateway with an answer, which begins with its status, to each of these requests, which are a
// method, a URI and a body. It also returns the requests that have come.
func answering(t *testing.T, network string, answers map[string]string) (endpoint string, asked *[]string) {
	asked = new([]string)
	return startGateway(t, network, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		request := strings.TrimSpace(r.Method + " " + r.URL.RequestURI() + " " + string(body))
		*asked = append(*asked, request)
		status, text, _ := strings.Cut(cmp.Or(answers[request], refusal(404, "unexpected", request)), " ")
		code, _ := strconv.Atoi(status)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}), asked
}

func refusal(status int, code, detail string) string {
	return fmt.Sprintf(`%d {"code":%q,"detail":%q,"started":false}`, status, code, detail)
}

func TestTheGatewayFlagNeedsNoTemporal(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		var received atomic.Pointer[http.Request]
		endpoint := startGateway(t, network, func(w http.ResponseWriter, r *http.Request) {
			received.Store(r)
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(append([]byte("got "), body...))
		})
		token := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(token, []byte("a token of some length\n"), 0o600))
		r := ctl(t, nil, "call", "hello", "greet", "it", "--gateway", endpoint, "--timeout", "20s", "--priority", "9",
			"--token-file", token)
		requireCode(t, ExitOK, r)
		require.Equal(t, "got it", r.out)
		require.Equal(t, "/v1/pools/hello/call/greet", received.Load().URL.Path)
		require.Regexp(t, "^(20000|1....)$", received.Load().Header.Get("Tempool-Timeout"), "what is left of it")
		require.Equal(t, "9", received.Load().Header.Get("Tempool-Priority"))
		for flag, advice := range map[string]string{"--token-file": "check --token-file and TEMPOOL_TOKEN_FILE",
			"--ca-file": "check --ca-file and TEMPOOL_CA_FILE"} {
			require.Contains(t, ctl(t, nil, "call", "hello", "greet", "--gateway", endpoint, flag, token+".none").err, advice)
		}
		if network == "tcp" {
			require.Equal(t, "Bearer a token of some length", received.Load().Header.Get("Authorization"))
		}
	}
}

func TestTheEnvironmentListsGateways(t *testing.T) {
	endpoint := startGateway(t, "tcp", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") })
	t.Setenv(envGateway, " "+endpoint+", "+endpoint)
	require.Equal(t, "hi", ctl(t, nil, "call", "hello", "greet").out)
	t.Setenv(envGateway, "nonsense")
	r := ctl(t, nil, "call", "hello", "greet")
	requireCode(t, ExitUsage, r)
	require.Contains(t, r.err, `TEMPOOL_GATEWAY has "nonsense"`)
	for _, secretly := range []string{"redis://s3cret@host", "http://s3cret@127.0.0.1:1",
		"http://127.0.0.1:1?token=s3cret"} {
		for _, format := range []string{"table", "json"} {
			t.Setenv(envGateway, secretly)
			fromEnvironment := ctl(t, nil, "call", "hello", "greet", "-o", format)
			fromFlag := ctl(t, nil, "call", "hello", "greet", "-o", format, "--gateway", secretly)
			for _, r := range []result{fromEnvironment, fromFlag} {
				require.NotEqual(t, ExitOK, r.code)
				require.Contains(t, r.err, "(hidden)")
				require.NotContains(t, r.err, "s3cret")
			}
		}
	}
	r = fail(t, nil, "call", "hello", "greet", "--gateway", endpoint, "--ca-file", filepath.Join(t.TempDir(), "none.pem"))
	require.Contains(t, r.err, "none.pem")
}
