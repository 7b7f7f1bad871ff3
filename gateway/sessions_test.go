package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/spec"
)

// fakeSessions has one store for all pools but one.
type fakeSessions struct{ store sessions.Store }

func (d fakeSessions) Of(_ context.Context, pool string) (sessions.HostCalls, error) {
	if pool == "elsewhere" {
		return sessions.HostCalls{}, api.Errorf(api.CodePoolNotFound, "pool %s is not here", pool)
	}
	return sessions.HostCalls{Store: d.store, TTL: 2 * time.Hour, AnonymousTTL: time.Minute}, nil
}

func (d fakeSessions) ToList(ctx context.Context, pool string) (sessions.HostCalls, error) {
	return d.Of(ctx, pool)
}

func withSessions(config sessions.Config) option { return withStore(embedded.InMemory(config)) }

func bounded(max int) sessions.Config {
	settings := spec.Default().Sessions
	settings.Max = max
	return sessions.Config{Settings: func() spec.Sessions { return settings }}
}

func withStore(store sessions.Store) option {
	return withConfig(func(c *Config) { c.Sessions = fakeSessions{store} })
}

func (a answer) session(t *testing.T) (s sessions.Session) {
	t.Helper()
	require.NoError(t, json.Unmarshal(a.body, &s), "%s", a.body)
	require.Equal(t, fmt.Sprintf("%q", fmt.Sprint(s.Version)), a.header.Get("ETag"))
	return s
}

func TestSessionLifecycleOverHTTP(t *testing.T) {
	e := parallel(t, 0)
	const path = "/v1/sessions/user:42"
	e.do("GET", path, nil).requireProblem(t, http.StatusNotFound, api.CodeSessionNotFound)
	e.do("PATCH", path, `{"data":{"k":1}}`).requireProblem(t, http.StatusNotFound, api.CodeSessionNotFound)

	made := e.do("PUT", path, `{"data":{"k":{"x":1}},"metadata":{"by":"me"}}`)
	require.Equal(t, http.StatusCreated, made.status)
	require.Equal(t, "2h", made.session(t).TTL.String())
	e.ok("PATCH", path, `{"data":{"k":{"x":null,"y":2}},"programs":{"p":[1]},"ttl":"10m"}`)
	got := e.do("GET", path, nil)
	s := got.session(t)
	require.Equal(t, `{"y":2}`, string(s.Data["k"]))
	require.Equal(t, int64(2), s.Version)
	require.Equal(t, "10m", s.TTL.String())
	require.Equal(t, `"me"`, string(s.Metadata["by"]))

	replaced := e.do("PUT", path, string(got.body)) // as it was read
	require.Equal(t, http.StatusOK, replaced.status)
	require.Equal(t, int64(3), replaced.session(t).Version)
	e.do("PUT", path, string(got.body)).requireProblem(t, http.StatusPreconditionFailed, api.CodeVersionConflict)
	require.Empty(t, e.do("PUT", path, `{}`).session(t).Data)
	require.Equal(t, "2h", e.do("PATCH", path, `{"ttl":null}`).session(t).TTL.String())

	require.Equal(t, http.StatusNoContent, e.do("DELETE", path, nil).status)
	e.do("DELETE", path, nil).requireProblem(t, http.StatusNotFound, api.CodeSessionNotFound)
}

func TestAnAnonymousSessionLivesForSeveralRequestsUntilItsTTL(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var passed atomic.Int64
	e := open(t, 0, withSessions(sessions.Config{Now: func() time.Time { return now.Add(time.Duration(passed.Load())) }}))
	made := e.do("POST", "/v1/sessions?pool=p", nil)
	require.Equal(t, http.StatusCreated, made.status, "%s", made.body)
	s := made.session(t)
	require.Regexp(t, `^temp_[A-Za-z0-9_-]{22}$`, s.ID)
	require.Equal(t, "1m", s.TTL.String(), "the ttl of anonymous sessions")
	path := "/v1/sessions/" + s.ID
	e.ok("PATCH", path, `{"data":{"k":1}}`)
	passed.Add(int64(59 * time.Second))
	require.Equal(t, "1", string(e.do("GET", path, nil).session(t).Data["k"]), "each use extends its life")
	passed.Add(int64(59 * time.Second))
	require.Equal(t, "1m", e.do("PUT", path, `{}`).session(t).TTL.String(), "replaced, it stays anonymous")
	passed.Add(int64(time.Minute))
	e.do("GET", path, nil).requireProblem(t, http.StatusNotFound, api.CodeSessionNotFound)

	other := e.do("POST", "/v1/sessions", `{"data":{"k":2},"ttl":"3m"}`).session(t)
	require.NotEqual(t, s.ID, other.ID)
	require.Equal(t, "3m", other.TTL.String())
	require.Equal(t, "2", string(other.Data["k"]))
	for _, bad := range []string{`{"id":"mine"}`, `{"version":1}`, `{"dta":{}}`, `[]`} {
		e.do("POST", "/v1/sessions", bad).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
	}
	e.do("POST", "/v1/sessions?pool=elsewhere", nil).requireProblem(t, http.StatusNotFound, api.CodePoolNotFound)
}

func TestVersionConditions(t *testing.T) {
	e := parallel(t, 0)
	const path = "/v1/sessions/a"
	conflict := func(a answer) {
		t.Helper()
		a.requireProblem(t, http.StatusPreconditionFailed, api.CodeVersionConflict)
	}
	e.do("PUT", path, `{}`, "If-Match", "*").requireProblem(t, http.StatusNotFound, api.CodeSessionNotFound)
	e.do("PUT", path, `{}`, "If-Match", `"1"`).requireProblem(t, http.StatusNotFound, api.CodeSessionNotFound)
	require.Equal(t, http.StatusCreated, e.do("PUT", path, `{}`, "If-None-Match", "*").status)
	e.do("PUT", path, `{}`, "If-None-Match", "*").requireProblem(t, http.StatusPreconditionFailed, api.CodeSessionExists)
	e.ok("PATCH", path, `{"data":{"k":1}}`, "If-Match", `"1"`)
	conflict(e.do("PATCH", path, `{"data":{"k":2}}`, "If-Match", `"1"`))
	conflict(e.do("PUT", path, `{}`, "If-Match", `"1"`))
	conflict(e.do("GET", path, nil, "If-Match", `"1"`))
	e.ok("PUT", path, `{"data":{"k":3}}`, "If-Match", `"2"`)
	require.Equal(t, "3", string(e.do("GET", path, nil).session(t).Data["k"]))
}

func TestInvalidSessionRequests(t *testing.T) {
	e := parallel(t, 0)
	const path = "/v1/sessions/a"
	require.Equal(t, http.StatusCreated, e.do("PUT", path, `{}`).status)
	for _, r := range [][]string{
		{"PUT", path, `{"dta":{}}`}, {"PUT", path, ``}, {"PUT", path, `[]`}, {"PUT", path, `{} {}`}, {"PUT", path, `{}}`},
		{"PUT", path, `{"id":"b"}`}, {"PUT", path, `{"ttl":"-1s"}`},
		{"PUT", path, `{"version":1}`, "If-Match", `"2"`}, {"PATCH", path, ``}, {"PATCH", path, `{"version":1}`},
		{"PATCH", path, `{}`, "If-None-Match", "*"},
		{"PATCH", path, `{}`, "If-Match", "1"}, {"PATCH", path, `{}`, "If-Match", `W/"1"`},
		{"PATCH", path, `{}`, "If-Match", `"1", "2"`}, {"PUT", path, `{}`, "If-None-Match", `"1"`},
		{"DELETE", path, ``, "If-Match", `"1"`}, {"GET", "/v1/sessions/a%2Fb", ``}, {"GET", "/v1/sessions/a%20b", ``},
		{"GET", "/v1/sessions/" + strings.Repeat("x", 257), ``},
	} {
		a := e.do(r[0], r[1], r[2], r[3:]...)
		a.requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
		require.NotContains(t, a.problem.Detail, "%!")
	}
	long := `{"data":{"k":"` + strings.Repeat("x", sessions.MaxBody) + `"}}`
	e.do("PUT", path, long).requireProblem(t, http.StatusRequestEntityTooLarge, api.CodePayloadTooLarge)
	e.do("PUT", path, long+strings.Repeat(" ", sessions.MaxBody)).requireProblem(t, http.StatusRequestEntityTooLarge,
		api.CodePayloadTooLarge)
	e.do("GET", path+"?pool=elsewhere", nil).requireProblem(t, http.StatusNotFound, api.CodePoolNotFound)
	e.do("POST", path, `{}`).requireProblem(t, http.StatusMethodNotAllowed, codeMethodNotAllowed)
}

func TestSessionsAreListedPageByPage(t *testing.T) {
	e := parallel(t, 0)
	list := func(query string) tempool.SessionList {
		t.Helper()
		return decode[tempool.SessionList](t, e.ok("GET", "/v1/sessions"+query, nil).body)
	}
	require.Empty(t, list("").Sessions)
	const all, most = 50, 20
	e.putSessions(all)
	require.Len(t, list("").Sessions, all)
	var ids []string
	for after := ""; ; {
		page := list(fmt.Sprintf("?limit=%d&after=%s", most, after))
		for _, s := range page.Sessions {
			ids = append(ids, s.ID)
			require.Equal(t, len(`{"programs":{},"data":{"k":1},"metadata":{}}`), s.Bytes)
		}
		if after = page.Next; after == "" {
			break
		}
		require.Len(t, page.Sessions, most)
	}
	require.Len(t, ids, all)
	require.IsIncreasing(t, ids)
	require.Empty(t, list(fmt.Sprintf("?limit=%d", all)).Next, "the last page says so")
	for _, bad := range []string{"0", "1001", "x"} {
		e.do("GET", "/v1/sessions?limit="+bad, nil).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
	}
	e.do("GET", "/v1/sessions?pool=elsewhere", nil).requireProblem(t, http.StatusNotFound, api.CodePoolNotFound)
}
