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

// copier notes what it is asked.
type copier struct{ asked []any }

func (c *copier) SessionCopy() api.SessionCopy {
	return api.SessionCopy{Phase: api.CopyInStep, Host: "here", InStep: true}
}

func (c *copier) CopySessions(_ context.Context, pool string, request api.SessionCopyRequest) (api.SessionCopy, error) {
	c.asked = append(c.asked, pool, request)
	return api.SessionCopy{Phase: api.CopyCopying}, nil
}

func (c *copier) StepSessionCopy(_ context.Context, step api.SessionCopyStep) (api.SessionCopy, error) {
	c.asked = append(c.asked, step)
	return api.SessionCopy{}, api.Errorf(api.CodeInvalid, "not now")
}

func withCopies(c *copier) option { return withConfig(func(config *Config) { config.Copies = c }) }

func TestSessionsAreCopiedByWhoMayOpenTheSocketAlone(t *testing.T) {
	c := &copier{}
	w := open(t, 0, withCopies(c), withConfig(func(config *Config) { config.Listen = "127.0.0.1:0" }))
	for _, request := range []struct{ method, path, body string }{
		{"GET", "/v1/admin/sessions/copy", ""},
		{"POST", "/v1/admin/sessions/copy?pool=p", `{"from":"embedded","to":"redis://elsewhere"}`},
		{"POST", "/v1/admin/sessions/copy/step", `{"step":"cut-over"}`},
	} {
		overTCP, err := http.NewRequestWithContext(t.Context(), request.method, w.gateway.Endpoint()+request.path, strings.NewReader(request.body))
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(overTCP)
		require.NoError(t, err)
		var problem Problem
		require.NoError(t, json.NewDecoder(response.Body).Decode(&problem))
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusForbidden, response.StatusCode)
		require.Equal(t, codeForbidden, problem.Code)
		require.Equal(t, "unix:"+w.gateway.config.Socket, problem.Endpoint, "the way for who may go it")
	}
	require.Empty(t, c.asked)
	http.DefaultClient.CloseIdleConnections()

	told := w.do("GET", "/v1/admin/sessions/copy", nil)
	require.Equal(t, http.StatusOK, told.status)
	require.JSONEq(t, `{"phase":"in_step","host":"here","in_step":true,"pending":0}`, string(told.body))
	begun := w.do("POST", "/v1/admin/sessions/copy?pool=p", `{"from":"embedded","to":"redis://elsewhere","replace":true}`)
	require.Equal(t, http.StatusAccepted, begun.status)
	w.do("POST", "/v1/admin/sessions/copy/step", `{"step":"back","force":true}`).refusedWith(t, http.StatusBadRequest, api.CodeInvalid)
	w.do("POST", "/v1/admin/sessions/copy", `{"where":"to"}`).refusedWith(t, http.StatusBadRequest, api.CodeInvalid)
	require.Equal(t, []any{"p", api.SessionCopyRequest{From: "embedded", To: "redis://elsewhere", Replace: true}, api.SessionCopyStep{Step: api.CopyStepBack, Force: true}}, c.asked)
}
