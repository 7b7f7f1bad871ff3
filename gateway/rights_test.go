package gateway

import (
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
)

// tcp sends a request over TCP with a bearer token, "" for none.
func (e *env) tcp(method, path, token, body string, headers ...string) answer {
	e.t.Helper()
	if token != "" {
		headers = append([]string{"Authorization", "Bearer " + token}, headers...)
	}
	a := ask(e.t, http.DefaultClient, requestOf(e.t.Context(), e.t, method, e.gateway.Endpoint()+path,
		strings.NewReader(body), headers...))
	if a.status >= 400 {
		a.problem = decode[Problem](e.t, a.body)
	}
	return a
}

func withTokens(path string) option {
	return withConfig(func(c *Config) { c.Listen, c.Security.TokensFile = "127.0.0.1:0", path })
}

func TestATokenReachesExactlyTheRoutesOfItsRights(t *testing.T) {
	t.Parallel()
	tokens, _ := tokensFile(t, []string{"nothing-here"}, "call")
	secrets := map[access.Rights]string{}
	for right := access.Call; right <= access.Admin; right <<= 1 {
		secrets[right] = addToken(t, tokens, right.String(), []string{"*"}, right.String())
	}
	elsewhere := addToken(t, tokens, "elsewhere", []string{"q*"}, access.All.Names()...)
	e := open(t, 1, withTokens(tokens))
	e.gateway.Handle("GET /metrics", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	routes := append(e.gateway.routes(), route{"GET", "/metrics", access.Read, everyPool, nil})
	for _, rt := range routes {
		path := strings.NewReplacer("{pool}", "p", "{method...}", "echo", "{id}", "p.0.1.99~"+api.NewLeaseToken(),
			"{session}", "s1", "{slot}", "0").Replace(rt.path)
		if path == "/v1/events" {
			path += "?follow=false"
		}
		public := path == "/healthz" || path == "/readyz"
		none := e.tcp(rt.method, path, "", "{}")
		if public {
			require.Equal(t, 200, none.status, path)
			continue
		}
		require.Equal(t, 401, none.status, "%s %s without a token", rt.method, path)
		require.Equal(t, api.CodeUnauthorized, none.problem.Code)
		for _, wrong := range []string{"Bearer tempool_unknown", "Basic " + secrets[rt.right]} {
			a := e.tcp(rt.method, path, "", "{}", "Authorization", wrong)
			require.Equal(t, 401, a.status, "%s %s with %s", rt.method, path, wrong)
		}
		for right, secret := range secrets {
			a := e.tcp(rt.method, path, secret, "{}")
			if rt.right == 0 || right == rt.right {
				require.NotContains(t, []int{401, 403}, a.status, "%s %s with the right %s: %s", rt.method, path, right, a.body)
			} else {
				require.Equal(t, 403, a.status, "%s %s with the right %s", rt.method, path, right)
				require.Contains(t, a.problem.Detail, rt.right.String())
			}
		}
		a := e.tcp(rt.method, path, elsewhere, "{}")
		if rt.scope == anyPool {
			require.Equal(t, 200, a.status, path)
		} else {
			require.Equal(t, 403, a.status, "%s %s with a token of other pools: %s", rt.method, path, a.body)
		}
	}
	listed := string(e.tcp("GET", "/v1/workers", elsewhere, "").body)
	require.JSONEq(t, "[]", listed, "workers of other pools are not listed")
}

func TestChangedTokensApplyWithoutARestart(t *testing.T) {
	tokens, first := tokensFile(t, []string{"*"}, "read")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { log.Close() })
	logged := func() int { // how often
		text, err := os.ReadFile(log.Name())
		require.NoError(t, err)
		return strings.Count(string(text), "chmod 600")
	}
	e := parallel(t, 0, withTokens(tokens), withConfig(func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	}))
	status := func(secret string) int { return e.tcp("GET", "/v1/pools", secret, "").status }
	require.Equal(t, 200, status(first))
	second := addToken(t, tokens, "second", []string{"*"}, "read")
	require.Eventually(t, func() bool { return status(second) == 200 }, timeout, poll)
	follow := func(path string, header ...string) <-chan error { // its end
		response, err := http.DefaultClient.Do(requestOf(t.Context(), t, "GET", e.gateway.Endpoint()+path, nil, header...))
		require.NoError(t, err)
		t.Cleanup(func() { response.Body.Close() })
		require.Equal(t, 200, response.StatusCode)
		return background(func() error { return errorOf(io.Copy(io.Discard, response.Body)) })
	}
	signedIn := func(secret string) (b browser, live <-chan error) { // a page of it
		b = newBrowser(t, e.gateway.Endpoint())
		b.post(303, "/ui/signin", url.Values{"token": {secret}, "form_token": {formToken(b.get(200, "/ui/signin"))}})
		return b, follow("/ui/live", "Cookie", b.cookies()[0].Name+"="+b.cookies()[0].Value)
	}
	visitor, left := signedIn(second)
	visitor.post(303, "/ui/signout", url.Values{"form_token": {formToken(visitor.get(200, "/ui/pools/p"))}})
	require.NoError(t, await(t, left), "its client has signed out")
	_, first1 := signedIn(first)
	_, second1 := signedIn(second)
	ends, stays := []<-chan error{first1}, []<-chan error{second1}
	for _, path := range []string{"/v1/pools/p/logs?follow", "/v1/events", "/ui/live"} {
		ends = append(ends, follow(path, "Authorization", "Bearer "+first))
		stays = append(stays, follow(path, "Authorization", "Bearer "+second))
	}
	text, err := os.ReadFile(tokens)
	require.NoError(t, err)
	others := strings.Replace(string(text), `['read']`, `['read', 'call']`, 1) // of the first one
	require.NotEqual(t, string(text), others)
	require.NoError(t, os.WriteFile(tokens+".new", []byte(others), 0o600))
	require.NoError(t, os.Rename(tokens+".new", tokens))
	for _, end := range ends {
		require.NoError(t, await(t, end), "nothing is followed any longer")
	}
	for _, end := range stays {
		require.Empty(t, end, "with another token it is")
	}
	require.NoError(t, access.Remove(tokens, "test"))
	require.Eventually(t, func() bool { return status(first) == 401 }, timeout, poll)
	require.NoError(t, access.Remove(tokens, "second"))
	for _, end := range stays {
		require.NoError(t, await(t, end))
	}
	require.NoError(t, os.WriteFile(tokens, []byte("half a fi"), 0o600))
	require.NoError(t, os.Remove(tokens))
	third := addToken(t, tokens, "third", []string{"*"}, "read")
	require.Eventually(t, func() bool { return status(third) == 200 }, timeout, poll, "after a mistake, too")
	require.Equal(t, 401, status(second))

	corrected := filepath.Join(t.TempDir(), "tokens.toml") // moved into place with a mode that it must not have
	fourth := addToken(t, corrected, "fourth", []string{"*"}, "read")
	require.NoError(t, os.Chmod(corrected, 0o664))
	require.NoError(t, os.Rename(corrected, tokens))
	require.Eventually(t, func() bool { return logged() == 1 }, timeout, poll)
	require.NoError(t, os.Chmod(tokens, 0o600))
	require.Eventually(t, func() bool { return status(fourth) == 200 }, timeout, poll, "only the mode has changed")
	require.Equal(t, 1, logged(), "and not with each attempt")
}

func TestAPriorityAboveTheTokensBoundIsLowered(t *testing.T) {
	t.Parallel()
	tokens, _ := tokensFile(t, []string{"*"}, "call")
	secret, hash := access.NewSecret()
	require.NoError(t, access.Add(tokens,
		access.Token{Name: "low", SHA256: hash, Pools: []string{"*"}, Rights: []string{"call"}, MaxPriority: new(2)}))
	high := addToken(t, tokens, "high", []string{"*"}, "call")
	e := open(t, 1, withTokens(tokens))
	held := e.heldCall("/v1/pools/p", "a")
	call := func(secret, priority, name string) <-chan int {
		return inLine(e, func() int {
			return e.tcp("POST", "/v1/pools/p/call/hold", secret, quoted(e.file(name)), api.HeaderPriority, priority).status
		})
	}
	low := call(secret, "9", "low")
	normal := call(high, "3", "normal")
	e.finish("a", held)
	e.awaitHeld(e.file("normal.began"))
	require.NoFileExists(t, e.file("low.began"), "priority 9 of a token bounded to 2 is behind 3")
	e.release(e.file("normal"))
	e.release(e.file("low"))
	require.Equal(t, 200, await(t, normal))
	require.Equal(t, 200, await(t, low))
}

// A traceback names files of the host, so only clients who may read the worker's log get it.
func TestATracebackIsForClientsThatMayReadLogs(t *testing.T) {
	tokens, caller := tokensFile(t, []string{"*"}, "call")
	reader := addToken(t, tokens, "reader", []string{"*"}, "call", "read")
	e := parallel(t, 1, withTokens(tokens))
	for secret, shown := range map[string]bool{caller: false, reader: true} {
		a := e.tcp("POST", "/v1/pools/p/call/bug", secret, "null")
		require.Equal(t, 500, a.status)
		failed := a.problem.WorkerError
		require.Equal(t, "KeyError", failed.Type)
		require.Equal(t, "'nobody catches this'", failed.Message)
		require.Equal(t, shown, strings.Contains(failed.Traceback, "worker.py"), failed.Traceback)
		require.Equal(t, shown, failed.Traceback != "")
	}
}

func TestAWorkersProcessHasNoRightOverTheSocket(t *testing.T) {
	e := parallel(t, 1)
	ask := func(method string) string {
		a := e.ok("POST", "/v1/pools/p/call/"+method, `["`+e.file("gw.sock")+`", "/v1/sessions"]`)
		return string(a.body)
	}
	for _, method := range []string{"get_socket", "get_socket_by_child", "get_socket_by_orphan"} {
		require.Contains(t, ask(method), "403", "a worker's process reads the sessions: %s", method)
	}
	e.ok("GET", "/v1/sessions", nil)
	client := exec.CommandContext(t.Context(), "python3", "-c", getSocket, e.file("gw.sock"), "/v1/sessions")
	out, err := client.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "200", "a process that is no worker's: %s", out)
}

// getSocket is a program that prints the status line of a GET over a Unix socket.
const getSocket = `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"GET " + sys.argv[2].encode() + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
print(s.makefile("rb").readline().decode())
`

func TestConnectionsOfOneClientAreBounded(t *testing.T) {
	tokens, one := tokensFile(t, []string{"*"}, "read")
	other := addToken(t, tokens, "other", []string{"*"}, "read")
	e := parallel(t, 0, withTokens(tokens), withConfig(func(c *Config) { c.Limits.ClientConnections = 2 }))
	open := func(secret string) (*http.Client, int) {
		client := clientWith(t, nil)
		return client, overTCP(t, client, e.gateway.Endpoint(), "/v1/pools", "Authorization", "Bearer "+secret)
	}
	first, status := open(one)
	require.Equal(t, 200, status)
	_, status = open(one)
	require.Equal(t, 200, status)
	_, status = open(one)
	require.Equal(t, 429, status, "a third connection of the token")
	_, status = open(other)
	require.Equal(t, 200, status, "of another token")
	first.CloseIdleConnections()
	require.Eventually(t, func() bool { _, status := open(one); return status == 200 }, timeout, poll)
}
