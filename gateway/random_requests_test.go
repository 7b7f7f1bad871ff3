package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/spec"
)

// requestMaker makes requests near those of the routes.
type requestMaker struct {
	*rand.Rand
	paths []string // of all routes of the gateway and its dashboard
	next  *int     // of paths
}

// newRequestMaker knows every route that a gateway has registered.
func newRequestMaker(t *testing.T, g *Gateway) requestMaker {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := requestMaker{Rand: rand.New(rand.NewPCG(seed, 0)), next: new(int)}
	for _, r := range g.routes() {
		m.paths = append(m.paths, r.path)
	}
	m.paths = append(m.paths, dashboardPaths(g)...)
	for range m.paths {
		require.NotContains(t, strings.ReplaceAll(m.path(), "%7B", "{"), "{", "give the variable of a new route some values")
	}
	return m
}

func dashboardPaths(g *Gateway) (paths []string) {
	for _, pattern := range g.dashboard.Routes() {
		paths = append(paths, strings.TrimSuffix(pattern[strings.Index(pattern, "/"):], "{$}"))
	}
	return paths
}

func pick[T any](m requestMaker, from ...T) T { return from[m.IntN(len(from))] }

var numbers = []string{"0", "1", "-1", "99999999999999999999", "x", "%00", ""}

var pathValues = map[string][]string{
	"{pool}": {"p", "p", "p", "p", "q", "", "P", "%00", "p%2F0", "..", strings.Repeat("a", 3000)},
	"{id}": {"p.0.1.1", "p.0.1.1~" + api.NewLeaseToken(), "p.0.1.9223372036854775807", "q.0.1.1", "....", "~",
		"p.0.1.1~~", "p.-1.0.0"},
	"{session}":   {"s1", "a%2Fb", "%ff", strings.Repeat("s", 300), "*"},
	"{method...}": {"echo", "pid", "tools/call", "", "%2e%2e/x", "../x", "echo//x", "a%00b", "no-such-method"},
	"{slot}":      numbers,
	"{n}":         numbers,
	"{action}": {"scale", "restart-all", "stop-pool", "restart", "drain", "suspend", "resume", "release", "stop", "",
		"format", "drain-host", "undrain-host", "%2e%2e"},
	"{host}": {"h", "h", "none", "%00", ""},
	"{name}": {"app.css", "app.js", "", "..%2Fui.go", "%2e%2e%2Ftemplates%2Fpool.html", "%00"},
}

// path is near that of the next route.
func (m requestMaker) path() string {
	path := m.paths[*m.next%len(m.paths)]
	*m.next++
	for variable, values := range pathValues {
		path = strings.ReplaceAll(path, variable, pick(m, values...))
	}
	switch m.IntN(10) {
	case 0:
		path = strings.Replace(path, "/v1/", pick(m, "//v1/", "/V1/", "/v1/./", "/%76%31/", "/v1/..;/", "/x/../v1/"), 1)
		path = strings.Replace(path, "/ui", pick(m, "//ui", "/UI", "/ui/.", "/%75%69", "/ui/..;", "/v1/../ui"), 1)
	case 1:
		path += pick(m, "?follow=true", "?follow&tail=1", "?follow=maybe", "?previous", "?previous&follow", "?since=1m&here",
			"?since=yesterday", "?tail=-1", "/", "?pool=p", "?pool=q", "?limit=-1", "?limit=99999999999999999999",
			"?outcome=close", "#x", "%", "?%zz=1", "?worker=0&lease=p.0.1.1", "?link=x", "?follow=false")
	}
	return path
}

func (m requestMaker) body() string {
	return pick(m, "", "{}", `{"holder":"me"}`, `{"ttl_ms":-1}`, `[]`, `"x"`, "{",
		`{"data":{"a":1}}`, `{"from":"embedded","to":"memory"}`,
		strings.Repeat("[", 20_000), "\x00\xff", `{"holder":"`+strings.Repeat("h", 5000)+`"}`)
}

func (m requestMaker) header(h http.Header) {
	for range m.IntN(4) {
		name := pick(m, api.HeaderPriority, api.HeaderTimeout, api.HeaderSession, api.HeaderLeaseToken, "If-Match",
			"If-None-Match", "X-Any", "Origin", "Content-Type", "Tempool-Worker")
		h.Set(name, pick(m, "1", "-1", "99999999999999999999", "*", `"3"`, "null", strings.Repeat("x", 2000), "text/plain",
			"http://evil.example"))
	}
}

func TestRandomRequestsGetNoRightThatTheirTokenHasNot(t *testing.T) {
	t.Parallel()
	tokens, call := tokensFile(t, []string{"p"}, "call")
	rights := map[string]access.Rights{"": 0, "tempool_unknown": 0, call: access.Call}
	secrets := []string{"", "tempool_unknown", call}
	for name, right := range map[string]access.Rights{"lease": access.Lease, "sessions": access.Sessions,
		"read": access.Read, "admin": access.Admin} {
		secret := addToken(t, tokens, name, []string{"*"}, name)
		rights[secret], secrets = right, append(secrets, secret)
	}
	copies := &fakeCopies{}
	e := open(t, 1, withTokens(tokens), withConfig(func(c *Config) {
		c.Copies = copies
	}), withSpec(func(sp *spec.Spec) {
		sp.Queue.Timeout = spec.Duration(20 * time.Millisecond) // a lease may hold the only worker
		sp.Lease.TTL = spec.Duration(50 * time.Millisecond)
	}))
	e.gateway.Handle("GET /metrics",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }))
	m := newRequestMaker(t, e.gateway)
	m.paths = append(m.paths, "/metrics")
	for range 2000 {
		secret, path := pick(m, secrets...), m.path()
		method := pick(m, "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "FROB")
		request, err := http.NewRequestWithContext(t.Context(), method, e.gateway.Endpoint(), strings.NewReader(m.body()))
		require.NoError(t, err)
		request.URL.Opaque = strings.TrimPrefix(e.gateway.Endpoint(), "http:") + path
		m.header(request.Header)
		if secret != "" {
			request.Header.Set("Authorization", "Bearer "+secret)
		}
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err, "%s %s", method, path)
		text, err := readUnlessStream(response)
		if response.StatusCode == 400 && response.Header.Get("Content-Type") != "application/problem+json" {
			continue // net/http itself refused bytes that are no request, and closed the connection
		}
		require.NoError(t, err, "%s %s %s", method, path, response.Status)
		has := rights[secret]
		said := fmt.Sprintf("%s %q with %q: %s %.300s", method, path, has, response.Status, text)
		plain, _, _ := strings.Cut(path, "?")
		decoded, _ := url.PathUnescape(plain)
		if isDashboard(decoded) && response.StatusCode >= 500 {
			require.NotEqual(t, 500, response.StatusCode, said)
		} else if response.StatusCode >= 500 && method != "HEAD" {
			var problem Problem
			require.NoError(t, json.Unmarshal(text, &problem), said)
			require.NotEqual(t, codeInternal, problem.Code, said)
			require.NotEmpty(t, problem.Code, said)
		}
		good := response.StatusCode < 300
		require.True(t, has&(access.Call|access.Lease) != 0 || response.Header.Get(api.HeaderWorker) == "", said)
		require.True(t, has&access.Lease != 0 || !strings.Contains(string(text), `"granted_at":"`) || has&access.Read != 0,
			said)
		for prefix, right := range map[string]access.Rights{"/v1/sessions": access.Sessions, "/v1/admin": access.Admin,
			"/v1/workers": access.Read, "/v1/leases": access.Lease, "/metrics": access.Read} {
			require.True(t, !good || !strings.HasPrefix(decoded, prefix) || has&right != 0, said)
		}
		require.True(t, !good || decoded != "/v1/pools" && !strings.HasSuffix(decoded, "/logs") || has&access.Read != 0, said)
		if has&access.Admin == 0 {
			require.Empty(t, copies.asked, said)
		}
		copies.asked = nil
	}
	e.ok("GET", "/healthz", nil)
}

// readUnlessStream reads an answer, but none that ends only with its client.
func readUnlessStream(response *http.Response) ([]byte, error) {
	defer response.Body.Close()
	follows := strings.Contains(response.Request.URL.Opaque, "follow") &&
		response.Header.Get("Content-Type") == "application/x-ndjson" && response.StatusCode == http.StatusOK
	if follows || strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return nil, nil
	}
	return io.ReadAll(response.Body)
}

// Only a user who has signed in with the right admin acts in the dashboard, with the secret of a page of that sign-in,
// and not from another site.
func TestRandomRequestsActInTheDashboardForItsOperatorsOnly(t *testing.T) {
	tokens, reader := tokensFile(t, []string{"p"}, "read", "sessions")
	operator := addToken(t, tokens, "operator", []string{"*"}, "read", "sessions", "admin")
	e := parallel(t, 0, withTokens(tokens))
	fleet := e.config.Fleet.(*actedFleet)
	base := e.gateway.Endpoint()
	cookies, formTokens := map[string]string{"": "", "x": "tempool_ui=x"}, map[string]string{"": "", "x": "x"}
	secrets := map[string]string{"reader": reader, "operator": operator}
	signIn := func(name, secret string) {
		b := newBrowser(t, base)
		form := url.Values{"token": {secret}, "form_token": {formToken(b.get(http.StatusOK, "/ui/signin"))}}
		b.post(http.StatusSeeOther, "/ui/signin", form)
		cookies[name] = b.cookies()[0].Name + "=" + b.cookies()[0].Value
		formTokens[name] = formToken(b.get(http.StatusOK, "/ui/"))
		require.NotEmpty(t, formTokens[name])
	}
	for name, secret := range secrets {
		signIn(name, secret)
	}
	signedIn := func(name string) bool {
		request := must(http.NewRequestWithContext(t.Context(), "GET", base+"/ui/", nil))
		request.Header.Set("Cookie", cookies[name])
		return e.gateway.dashboard.Principal(request) != nil
	}
	m := newRequestMaker(t, e.gateway)
	m.paths = dashboardPaths(e.gateway)
	names := []string{"", "x", "reader", "operator", "operator"}
	for range 2000 {
		who, form, path, site := pick(m, names...), pick(m, names...), m.path(), pick(m, "", "", "same-origin", "same-site",
			"cross-site", "none")
		method := pick(m, "GET", "POST", "POST", "POST", "PUT", "HEAD", "FROB")
		body := url.Values{"form_token": {formTokens[form]}, "worker": {pick(m, numbers...)},
			"size": {pick(m, "3", "-1", "", "x")}, "lease": {pick(m, "p.0.1.1", "q.0.1.1", "x")},
			"reason": {pick(m, "", "because", "because", strings.Repeat("r", 20_000), strings.Repeat("r", 60_000))},
			"link":   {pick(m, "", "x")}, "token": {pick(m, "", "x")}}
		request, err := http.NewRequestWithContext(t.Context(), method, base, strings.NewReader(body.Encode()))
		require.NoError(t, err)
		request.URL.Opaque = strings.TrimPrefix(base, "http:") + path
		for name, value := range map[string]string{"Cookie": cookies[who], "Sec-Fetch-Site": site,
			"Content-Type": "application/x-www-form-urlencoded"} {
			if value != "" {
				request.Header.Set(name, value)
			}
		}
		before := fleet.acted
		response, err := http.DefaultTransport.RoundTrip(request)
		if request.ContentLength > 16<<10 && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
			// the gateway has refused so long a form, and a busy client has not read the answer before the connection was closed
			continue
		}
		require.NoError(t, err, "%s %s", method, path)
		text, err := readUnlessStream(response)
		if response.StatusCode == 400 && strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain") {
			continue // net/http itself refused bytes that are no request, and closed the connection
		}
		require.NoError(t, err)
		said := fmt.Sprintf("%s %q as %q with the form of %q from %q: %s %.300s", method, path, who, form, site,
			response.Status, text)
		require.NotEqual(t, 500, response.StatusCode, said)
		require.Empty(t, response.Header.Get("Access-Control-Allow-Origin"), said)
		if fleet.acted > before {
			require.Equal(t, []string{"POST", "operator", "operator"}, []string{method, who, form}, said)
			require.NotContains(t, []string{"same-site", "cross-site"}, site, said)
		}
		// a form of another sign-in, or of another site, does not sign out
		if secret := secrets[who]; secret != "" && !signedIn(who) {
			require.Equal(t, []string{"POST", who}, []string{method, form}, said)
			require.NotContains(t, []string{"same-site", "cross-site"}, site, said)
			signIn(who, secret)
		}
		if response.StatusCode == 200 && (who == "" || who == "x") {
			plain, _, _ := strings.Cut(path, "?")
			decoded, _ := url.PathUnescape(plain)
			require.True(t, strings.HasPrefix(decoded, "/ui/signin") || strings.HasPrefix(decoded, "/ui/static/"), said)
		}
	}
	before := fleet.acted
	form := url.Values{"form_token": {formTokens["operator"]}}
	b := newBrowser(t, base)
	b.post(http.StatusSeeOther, "/ui/pools/p/do/restart-all", form, "Cookie", cookies["operator"])
	require.Equal(t, before+1, fleet.acted, "the operator acts")
	b.post(http.StatusSeeOther, "/ui/signout", form, "Cookie", cookies["operator"])
	require.False(t, signedIn("operator"))
}
