package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
)

const (
	exportPath = "/v1/pools/p/sessions/export"
	importPath = "/v1/pools/p/sessions/import"
)

func (e *env) putSessions(n int) {
	e.t.Helper()
	for i := range n {
		require.Equal(e.t, http.StatusCreated, e.do("PUT", fmt.Sprintf("/v1/sessions/s%03d", i), `{"data":{"k":1}}`).status)
	}
}

func imported(t *testing.T, a answer) api.SessionImport {
	t.Helper()
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	return decode[api.SessionImport](t, a.body)
}

func TestABackupIsImportedWhileTheSessionsAreInUse(t *testing.T) {
	const n = 50
	e := parallel(t, 0)
	e.putSessions(n)
	backup := e.ok("GET", exportPath, nil)
	require.Equal(t, "application/x-ndjson", backup.header.Get("Content-Type"))
	require.Equal(t, n+2, bytes.Count(backup.body, []byte("\n")))
	require.Contains(t, string(backup.body), `"pool":"p"`)

	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range n {
				e.do("PATCH", fmt.Sprintf("/v1/sessions/s%03d", i), `{"data":{"k":2}}`)
			}
		})
		group.Go(func() { e.do("POST", importPath, string(backup.body)) })
	}
	group.Wait()
	for i := range n {
		s := e.do("GET", fmt.Sprintf("/v1/sessions/s%03d", i), nil).session(t)
		require.Equal(t, "2", string(s.Data["k"]))
		require.Equal(t, int64(5), s.Version, "no import undid a change")
	}
	require.Equal(t, http.StatusNoContent, e.do("DELETE", "/v1/sessions/s007", nil).status)
	require.Equal(t, api.SessionImport{Created: 1, Kept: n - 1},
		imported(t, e.do("POST", importPath, string(backup.body))))
	require.Equal(t, int64(1), e.do("GET", "/v1/sessions/s007", nil).session(t).Version)
}

func TestBackupRequestsThatFail(t *testing.T) {
	e := parallel(t, 0, withSessions(bounded(3)))
	e.putSessions(3)
	backup := string(e.do("GET", exportPath, nil).body)
	for _, bad := range []string{"", "hello", "{}", strings.Replace(backup, `"p"`, `"q"`, 1), backup[:len(backup)-20]} {
		e.do("POST", importPath, bad).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
	}
	e.do("POST", importPath+"?any_pool=maybe", backup).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
	require.Equal(t, 3, imported(t,
		e.do("POST", importPath+"?any_pool=true", strings.Replace(backup, `"p"`, `"q"`, 1))).Kept)
	e.do("GET", "/v1/pools/elsewhere/sessions/export", nil).requireProblem(t, http.StatusNotFound, api.CodePoolNotFound)
	e.do("POST", "/v1/pools/elsewhere/sessions/import", backup).requireProblem(t, http.StatusNotFound,
		api.CodePoolNotFound)
	e.do("GET", "/v1/pools/a%20b/sessions/export", nil).requireProblem(t, http.StatusNotFound, api.CodePoolNotFound)

	full := open(t, 0, withSessions(bounded(1)))
	problem := full.do("POST", importPath, backup)
	problem.requireProblem(t, http.StatusInsufficientStorage, api.CodeStoreFull)
	require.Contains(t, string(problem.body),
		"(1 created, 0 replaced, 0 kept, 0 expired; repeating the import keeps what is done)")
}

func TestConcurrentBackupsAreLimited(t *testing.T) {
	e := parallel(t, 0)
	for range maxBackups {
		e.gateway.backups <- struct{}{}
	}
	e.do("GET", exportPath, nil).requireProblem(t, http.StatusServiceUnavailable, api.CodeUnavailable)
	e.do("POST", importPath, "").requireProblem(t, http.StatusServiceUnavailable, api.CodeUnavailable)
	<-e.gateway.backups
	for range maxBackups + 1 { // each frees its place
		e.ok("GET", exportPath, nil)
		e.do("POST", importPath, "").requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
		e.do("GET", "/v1/pools/elsewhere/sessions/export", nil).requireProblem(t, http.StatusNotFound, api.CodePoolNotFound)
	}
}

// failingStore fails to read sessions after the first pages.
type failingStore struct {
	sessions.Store
	pages int
}

func (s *failingStore) Peek(ctx context.Context, ids []string) ([]*sessions.Session, error) {
	if s.pages--; s.pages < 0 {
		return nil, sessions.Unavailable("read sessions", errors.New("it went away"))
	}
	return s.Store.Peek(ctx, ids)
}

func TestAnExportThatFailsHalfwayIsNoBackup(t *testing.T) {
	store := &failingStore{embedded.InMemory(sessions.Config{}), 2}
	e := parallel(t, 0, withConfig(func(c *Config) { c.Listen, c.Sessions = "127.0.0.1:0", fakeSessions{store} }))
	e.putSessions(50)
	client, err := tempool.Dial(t.Context(), tempool.Options{Gateways: []string{e.gateway.Endpoint()}})
	require.NoError(t, err)
	defer client.Close()
	var out bytes.Buffer
	_, err = client.Pool("p").ExportSessions(t.Context(), &out)
	require.ErrorIs(t, err, api.ErrStoreUnavailable)
	require.ErrorContains(t, err, "it went away")
	e.do("POST", importPath, out.String()).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)

	store.pages = 1000
	out.Reset()
	end, err := client.Pool("p").ExportSessions(t.Context(), &out)
	require.NoError(t, err)
	require.Equal(t, 50, end.Sessions)
	done, err := client.Pool("p").ImportSessions(t.Context(), bytes.NewReader(out.Bytes()), tempool.ImportOptions{})
	require.NoError(t, err)
	require.Equal(t, 50, done.Kept)
	_, err = client.Pool("p").ImportSessions(t.Context(), strings.NewReader("{}\n"), tempool.ImportOptions{})
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "line 1: this is not a backup")
	_, err = client.Pool("elsewhere").ImportSessions(t.Context(), neverRead{t}, tempool.ImportOptions{})
	require.ErrorIs(t, err, api.ErrPoolNotFound)
}

// neverRead fails the test if it is read: the gateway refuses the request before.
type neverRead struct{ t *testing.T }

func (r neverRead) Read([]byte) (int, error) {
	r.t.Error("the backup was read")
	return 0, io.EOF
}

// fakeCopies records its calls.
type fakeCopies struct{ asked []any }

func (c *fakeCopies) SessionCopy() api.SessionCopy {
	return api.SessionCopy{Phase: api.CopyInSync, Host: "here", InSync: true}
}

func (c *fakeCopies) CopySessions(_ context.Context, pool string,
	request api.SessionCopyRequest) (api.SessionCopy, error) {
	c.asked = append(c.asked, pool, request)
	return api.SessionCopy{Phase: api.CopyCopying}, nil
}

func (c *fakeCopies) StepSessionCopy(_ context.Context, step api.SessionCopyStep) (api.SessionCopy, error) {
	c.asked = append(c.asked, step)
	return api.SessionCopy{}, api.Errorf(api.CodeInvalid, "not now")
}

func TestSessionCopyIsAllowedOverTheSocketOnly(t *testing.T) {
	c := &fakeCopies{}
	e := parallel(t, 0, withConfig(func(config *Config) { config.Listen, config.Copies = "127.0.0.1:0", c }))
	for _, request := range []struct{ method, path, body string }{
		{"GET", "/v1/admin/sessions/copy", ""},
		{"POST", "/v1/admin/sessions/copy?pool=p", `{"from":"embedded","to":"redis://elsewhere"}`},
		{"POST", "/v1/admin/sessions/copy/step", `{"step":"cut-over"}`},
	} {
		refused := e.tcp(request.method, request.path, "", request.body)
		refused.requireProblem(t, http.StatusForbidden, api.CodeForbidden)
		require.Equal(t, "unix:"+e.gateway.config.Socket, refused.problem.Endpoint, "the endpoint of the operator")
	}
	require.Empty(t, c.asked)
	for _, path := range []string{"/v1/pools", "/v1/sessions"} { // without a tokens file, loopback is a client
		require.Equal(t, 200, e.tcp("GET", path, "", "").status, path)
	}

	response := e.ok("GET", "/v1/admin/sessions/copy", nil)
	require.JSONEq(t, `{"phase":"in_sync","host":"here","in_sync":true,"pending":0}`, string(response.body))
	begun := e.do("POST", "/v1/admin/sessions/copy?pool=p", `{"from":"embedded","to":"redis://elsewhere","replace":true}`)
	require.Equal(t, http.StatusAccepted, begun.status)
	e.do("POST", "/v1/admin/sessions/copy/step", `{"step":"back","force":true}`).requireProblem(t, http.StatusBadRequest,
		api.CodeInvalid)
	e.do("POST", "/v1/admin/sessions/copy", `{"where":"to"}`).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
	require.Equal(t, []any{"p", api.SessionCopyRequest{From: "embedded", To: "redis://elsewhere", Replace: true},
		api.SessionCopyStep{Step: api.CopyStepBack, Force: true}}, c.asked)
}

// slowToDelete is a store that deletes nothing before deletes is closed.
type slowToDelete struct {
	sessions.Store
	deletes chan struct{}
}

func (s slowToDelete) Delete(ctx context.Context, id string) error {
	<-s.deletes
	return s.Store.Delete(ctx, id)
}
