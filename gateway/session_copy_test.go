package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

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

func withCopies(c *fakeCopies) option { return withConfig(func(config *Config) { config.Copies = c }) }

func TestSessionCopyIsAllowedOverTheSocketOnly(t *testing.T) {
	t.Parallel()
	c := &fakeCopies{}
	e := open(t, 0, withCopies(c), withConfig(func(config *Config) { config.Listen = "127.0.0.1:0" }))
	for _, request := range []struct{ method, path, body string }{
		{"GET", "/v1/admin/sessions/copy", ""},
		{"POST", "/v1/admin/sessions/copy?pool=p", `{"from":"embedded","to":"redis://elsewhere"}`},
		{"POST", "/v1/admin/sessions/copy/step", `{"step":"cut-over"}`},
	} {
		overTCP, err := http.NewRequestWithContext(t.Context(), request.method, e.gateway.Endpoint()+request.path,
			strings.NewReader(request.body))
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(overTCP)
		require.NoError(t, err)
		var problem Problem
		require.NoError(t, json.NewDecoder(response.Body).Decode(&problem))
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusForbidden, response.StatusCode)
		require.Equal(t, api.CodeForbidden, problem.Code)
		require.Equal(t, "unix:"+e.gateway.config.Socket, problem.Endpoint, "the endpoint of the operator")
	}
	require.Empty(t, c.asked)
	http.DefaultClient.CloseIdleConnections()

	response := e.do("GET", "/v1/admin/sessions/copy", nil)
	require.Equal(t, http.StatusOK, response.status)
	require.JSONEq(t, `{"phase":"in_sync","host":"here","in_sync":true,"pending":0}`, string(response.body))
	begun := e.do("POST", "/v1/admin/sessions/copy?pool=p", `{"from":"embedded","to":"redis://elsewhere","replace":true}`)
	require.Equal(t, http.StatusAccepted, begun.status)
	e.do("POST", "/v1/admin/sessions/copy/step", `{"step":"back","force":true}`).requireProblem(t, http.StatusBadRequest,
		api.CodeInvalid)
	e.do("POST", "/v1/admin/sessions/copy", `{"where":"to"}`).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
	require.Equal(t, []any{"p", api.SessionCopyRequest{From: "embedded", To: "redis://elsewhere", Replace: true},
		api.SessionCopyStep{Step: api.CopyStepBack, Force: true}}, c.asked)
}
