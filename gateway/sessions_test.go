package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/memory"
)

// drawer is the one store of all pools but one.
type drawer struct{ store sessions.Store }

func (d drawer) Of(_ context.Context, pool string) (sessions.HostCalls, error) {
	if pool == "elsewhere" {
		return sessions.HostCalls{}, api.Errorf(api.CodePoolNotFound, "pool %s is not here", pool)
	}
	return sessions.HostCalls{Store: d.store, TTL: 2 * time.Hour, AnonymousTTL: time.Minute}, nil
}

func withSessions(config sessions.Config) option {
	return withConfig(func(c *Config) { c.Sessions = drawer{memory.Open(config)} })
}

func (a answer) session(t *testing.T) (s sessions.Session) {
	t.Helper()
	require.NoError(t, json.Unmarshal(a.body, &s), "%s", a.body)
	require.Equal(t, fmt.Sprintf("%q", fmt.Sprint(s.Version)), a.header.Get("ETag"))
	return s
}

func TestASessionIsMadeReadChangedAndDeletedOverHTTP(t *testing.T) {
	w := open(t, 0, withSessions(sessions.Config{}))
	const path = "/v1/sessions/user:42"
	w.do("GET", path, nil).refusedWith(t, http.StatusNotFound, api.CodeSessionNotFound)
	w.do("PATCH", path, `{"data":{"k":1}}`).refusedWith(t, http.StatusNotFound, api.CodeSessionNotFound)

	made := w.do("PUT", path, `{"data":{"k":{"x":1}},"metadata":{"by":"me"}}`)
	require.Equal(t, http.StatusCreated, made.status)
	require.Equal(t, "2h", made.session(t).TTL.String())
	changed := w.do("PATCH", path, `{"data":{"k":{"x":null,"y":2}},"programs":{"p":[1]},"ttl":"10m"}`)
	require.Equal(t, http.StatusOK, changed.status)
	got := w.do("GET", path, nil)
	s := got.session(t)
	require.Equal(t, `{"y":2}`, string(s.Data["k"]))
	require.Equal(t, int64(2), s.Version)
	require.Equal(t, "10m", s.TTL.String())
	require.Equal(t, `"me"`, string(s.Metadata["by"]))

	replaced := w.do("PUT", path, string(got.body)) // as it was read
	require.Equal(t, http.StatusOK, replaced.status)
	require.Equal(t, int64(3), replaced.session(t).Version)
	w.do("PUT", path, string(got.body)).refusedWith(t, http.StatusPreconditionFailed, api.CodeVersionConflict)
	require.Empty(t, w.do("PUT", path, `{}`).session(t).Data)
	require.Equal(t, "2h", w.do("PATCH", path, `{"ttl":null}`).session(t).TTL.String())

	require.Equal(t, http.StatusNoContent, w.do("DELETE", path, nil).status)
	w.do("DELETE", path, nil).refusedWith(t, http.StatusNotFound, api.CodeSessionNotFound)
}

func TestAConditionOnTheVersionHolds(t *testing.T) {
	w := open(t, 0, withSessions(sessions.Config{}))
	const path = "/v1/sessions/a"
	conflict := func(a answer) {
		t.Helper()
		a.refusedWith(t, http.StatusPreconditionFailed, api.CodeVersionConflict)
	}
	w.do("PUT", path, `{}`, "If-Match", "*").refusedWith(t, http.StatusNotFound, api.CodeSessionNotFound)
	w.do("PUT", path, `{}`, "If-Match", `"1"`).refusedWith(t, http.StatusNotFound, api.CodeSessionNotFound)
	require.Equal(t, http.StatusCreated, w.do("PUT", path, `{}`, "If-None-Match", "*").status)
	w.do("PUT", path, `{}`, "If-None-Match", "*").refusedWith(t, http.StatusPreconditionFailed, api.CodeSessionExists)
	require.Equal(t, http.StatusOK, w.do("PATCH", path, `{"data":{"k":1}}`, "If-Match", `"1"`).status)
	conflict(w.do("PATCH", path, `{"data":{"k":2}}`, "If-Match", `"1"`))
	conflict(w.do("PUT", path, `{}`, "If-Match", `"1"`))
	conflict(w.do("GET", path, nil, "If-Match", `"1"`))
	require.Equal(t, http.StatusOK, w.do("PUT", path, `{"data":{"k":3}}`, "If-Match", `"2"`).status)
	require.Equal(t, "3", string(w.do("GET", path, nil).session(t).Data["k"]))
}

func TestARequestAboutASessionThatMakesNoSenseIsRefused(t *testing.T) {
	w := open(t, 0, withSessions(sessions.Config{}))
	const path = "/v1/sessions/a"
	require.Equal(t, http.StatusCreated, w.do("PUT", path, `{}`).status)
	for _, r := range [][]string{
		{"PUT", path, `{"dta":{}}`}, {"PUT", path, ``}, {"PUT", path, `[]`}, {"PUT", path, `{} {}`}, {"PUT", path, `{"id":"b"}`}, {"PUT", path, `{"ttl":"-1s"}`},
		{"PUT", path, `{"version":1}`, "If-Match", `"2"`}, {"PATCH", path, ``}, {"PATCH", path, `{"version":1}`}, {"PATCH", path, `{}`, "If-None-Match", "*"},
		{"PATCH", path, `{}`, "If-Match", "1"}, {"PATCH", path, `{}`, "If-Match", `W/"1"`}, {"PATCH", path, `{}`, "If-Match", `"1", "2"`}, {"PUT", path, `{}`, "If-None-Match", `"1"`},
		{"DELETE", path, ``, "If-Match", `"1"`}, {"GET", "/v1/sessions/a%2Fb", ``}, {"GET", "/v1/sessions/a%20b", ``}, {"GET", "/v1/sessions/" + strings.Repeat("x", 257), ``},
	} {
		w.do(r[0], r[1], r[2], r[3:]...).refusedWith(t, http.StatusBadRequest, api.CodeInvalid)
	}
	long := `{"data":{"k":"` + strings.Repeat("x", sessions.MaxBody) + `"}}`
	w.do("PUT", path, long).refusedWith(t, http.StatusRequestEntityTooLarge, api.CodePayloadTooLarge)
	w.do("PUT", path, long+strings.Repeat(" ", sessions.MaxBody)).refusedWith(t, http.StatusRequestEntityTooLarge, api.CodePayloadTooLarge)
	w.do("GET", path+"?pool=elsewhere", nil).refusedWith(t, http.StatusNotFound, api.CodePoolNotFound)
	w.do("POST", path, `{}`).refusedWith(t, http.StatusMethodNotAllowed, codeMethodNotAllowed)
}

func TestAFullStoreAnswersThatItIsFull(t *testing.T) {
	w := open(t, 0, withSessions(sessions.Config{Max: 1}))
	require.Equal(t, http.StatusCreated, w.do("PUT", "/v1/sessions/a", `{}`).status)
	w.do("PUT", "/v1/sessions/b", `{}`).refusedWith(t, http.StatusInsufficientStorage, api.CodeStoreFull)
}

func TestManyPatchesOfOneSessionAreAllKept(t *testing.T) {
	w := open(t, 0, withSessions(sessions.Config{}))
	const writers = 32
	require.Equal(t, http.StatusCreated, w.do("PUT", "/v1/sessions/a", `{}`).status)
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() { w.do("PATCH", "/v1/sessions/a", fmt.Sprintf(`{"data":{"k%d":%d}}`, i, i)) })
	}
	group.Wait()
	require.Len(t, w.do("GET", "/v1/sessions/a", nil).session(t).Data, writers)
}

func TestSessionsAreListedPageByPage(t *testing.T) {
	w := open(t, 0, withSessions(sessions.Config{}))
	list := func(query string) (page tempool.SessionList) {
		t.Helper()
		got := w.do("GET", "/v1/sessions"+query, nil)
		require.Equal(t, http.StatusOK, got.status, "%s", got.body)
		require.NoError(t, json.Unmarshal(got.body, &page))
		return page
	}
	require.Empty(t, list("").Sessions)
	const all = 3*listBatch + 2
	for i := range all {
		require.Equal(t, http.StatusCreated, w.do("PUT", fmt.Sprintf("/v1/sessions/s%03d", i), `{"data":{"k":1}}`).status)
	}
	require.Len(t, list("").Sessions, all)
	var ids []string
	for after := ""; ; {
		page := list(fmt.Sprintf("?limit=%d&after=%s", listBatch+4, after))
		for _, s := range page.Sessions {
			ids = append(ids, s.ID)
			require.Equal(t, len(`{"programs":{},"data":{"k":1},"metadata":{}}`), s.Bytes)
		}
		if after = page.Next; after == "" {
			break
		}
		require.Len(t, page.Sessions, listBatch+4)
	}
	require.Len(t, ids, all)
	require.IsIncreasing(t, ids)
	require.Empty(t, list(fmt.Sprintf("?limit=%d", all)).Next, "the last page says so")
	for _, bad := range []string{"0", "1001", "x"} {
		w.do("GET", "/v1/sessions?limit="+bad, nil).refusedWith(t, http.StatusBadRequest, api.CodeInvalid)
	}
	w.do("GET", "/v1/sessions?pool=elsewhere", nil).refusedWith(t, http.StatusNotFound, api.CodePoolNotFound)
}
