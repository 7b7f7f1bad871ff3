package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

// requestMaker makes requests near those of the routes.
type requestMaker struct {
	*rand.Rand
	routes []route
}

func pick[T any](m requestMaker, from ...T) T { return from[m.IntN(len(from))] }

func (m requestMaker) path() string {
	path := m.routes[m.IntN(len(m.routes))].path
	for _, variable := range []string{"{pool}", "{id}", "{session}", "{method...}"} {
		value := map[string][]string{
			"{pool}":      {"p", "q", "", "P", "%00", "p%2F0", "..", strings.Repeat("a", 3000)},
			"{id}":        {"p.0.1.1", "p.0.1.1~" + api.NewLeaseToken(), "p.0.1.9223372036854775807", "q.0.1.1", "....", "~", "p.0.1.1~~", "p.-1.0.0"},
			"{session}":   {"s1", "a%2Fb", "%ff", strings.Repeat("s", 300), "*"},
			"{method...}": {"echo", "pid", "tools/call", "", "%2e%2e/x", "../x", "echo//x", "a%00b", "no-such-method"},
		}[variable]
		path = strings.ReplaceAll(path, variable, pick(m, value...))
	}
	switch m.IntN(10) {
	case 0:
		path = strings.Replace(path, "/v1/", pick(m, "//v1/", "/V1/", "/v1/./", "/%76%31/", "/v1/..;/", "/x/../v1/"), 1)
	case 1:
		path += pick(m, "/", "?pool=p", "?pool=q", "?limit=-1", "?limit=99999999999999999999", "?outcome=close", "#x", "%", "?%zz=1")
	}
	return path
}

func (m requestMaker) body() string {
	return pick(m, "", "{}", `{"holder":"me"}`, `{"holder":"gateway/here"}`, `{"ttl_ms":-1}`, `[]`, `"x"`, "{", `{"data":{"a":1}}`, `{"from":"embedded","to":"memory"}`,
		strings.Repeat("[", 20_000), "\x00\xff", `{"holder":"`+strings.Repeat("h", 5000)+`"}`)
}

func (m requestMaker) header(h http.Header) {
	for range m.IntN(4) {
		name := pick(m, api.HeaderPriority, api.HeaderTimeout, api.HeaderSession, api.HeaderLeaseToken, "If-Match", "If-None-Match", "X-Any", "Origin", "Content-Type", "Tempool-Worker")
		h.Set(name, pick(m, "1", "-1", "99999999999999999999", "*", `"3"`, "null", strings.Repeat("x", 2000), "text/plain", "http://evil.example"))
	}
}

func TestRandomRequestsGetNoRightThatTheirTokenHasNot(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	tokens, call := tokensFile(t, t.TempDir(), []string{"p"}, "call")
	rights := map[string]access.Rights{"": 0, "tempool_unknown": 0, call: access.Call}
	secrets := []string{"", "tempool_unknown", call}
	for name, right := range map[string]access.Rights{"lease": access.Lease, "sessions": access.Sessions, "read": access.Read, "admin": access.Admin} {
		secret := addToken(t, tokens, name, []string{"*"}, name)
		rights[secret], secrets = right, append(secrets, secret)
	}
	copies := &fakeCopies{}
	e := open(t, 1, withTokens(tokens), withSessions(sessions.Config{}), withCopies(copies), withSpec(func(sp *spec.Spec) {
		sp.Queue.Timeout = spec.Duration(20 * time.Millisecond) // a lease may hold the only worker
		sp.Lease.TTL = spec.Duration(50 * time.Millisecond)
	}))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := requestMaker{rand.New(rand.NewPCG(seed, 0)), e.gateway.routes()}
	for range 1500 {
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
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode == 400 && response.Header.Get("Content-Type") != "application/problem+json" {
			continue // net/http itself refused bytes that are no request, and closed the connection
		}
		require.NoError(t, err, "%s %s %s", method, path, response.Status)
		has := rights[secret]
		said := fmt.Sprintf("%s %q with %q: %s %.300s", method, path, has, response.Status, text)
		if response.StatusCode >= 500 && method != "HEAD" {
			var problem Problem
			require.NoError(t, json.Unmarshal(text, &problem), said)
			require.NotEqual(t, codeInternal, problem.Code, said)
			require.NotEmpty(t, problem.Code, said)
		}
		plain, _, _ := strings.Cut(path, "?")
		decoded, _ := url.PathUnescape(plain)
		good := response.StatusCode < 300
		require.True(t, has&(access.Call|access.Lease) != 0 || response.Header.Get(api.HeaderWorker) == "", said)
		require.True(t, has&access.Lease != 0 || !strings.Contains(string(text), `"granted_at":"`) || has&access.Read != 0, said)
		for prefix, right := range map[string]access.Rights{"/v1/sessions": access.Sessions, "/v1/admin": access.Admin, "/v1/workers": access.Read, "/v1/leases": access.Lease} {
			require.True(t, !good || !strings.HasPrefix(decoded, prefix) || has&right != 0, said)
		}
		require.True(t, !good || decoded != "/v1/pools" || has&access.Read != 0, said)
		if has&access.Admin == 0 {
			require.Empty(t, copies.asked, said)
		}
		copies.asked = nil
	}
	require.Equal(t, 200, e.do("GET", "/healthz", nil).status)
}
