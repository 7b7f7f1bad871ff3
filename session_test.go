package tempool

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestSessionRequestsGoThroughAGateway(t *testing.T) {
	g := newFakeGateway(t, "unix")
	const stored = `{"id":"a b","data":{"k":1},"programs":{},"metadata":{},"version":4,"ttl":"2h"}`
	g.session = answering(http.StatusOK, stored)
	session := clientOf(t, g).Pool("p").Session("user:4?")
	state, err := session.Get(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(4), state.Version)
	require.Equal(t, "2h", state.TTL.String())
	request, body := g.last()
	require.Equal(t, "GET /v1/sessions/user:4%3F?pool=p", request.Method+" "+request.URL.RequestURI())
	require.Empty(t, body)

	_, err = session.Put(t.Context(), *state)
	require.NoError(t, err)
	request, body = g.last()
	require.Equal(t, http.MethodPut, request.Method)
	require.JSONEq(t, stored, body)
	_, err = session.Create(t.Context(), *state)
	require.NoError(t, err)
	request, body = g.last()
	require.Equal(t, "*", request.Header.Get("If-None-Match"))
	require.NotContains(t, body, "version")
	_, err = session.Patch(t.Context(), json.RawMessage(`{"data":{"k":null}}`), 4)
	require.NoError(t, err)
	request, body = g.last()
	require.Equal(t, []string{http.MethodPatch, `"4"`, `{"data":{"k":null}}`},
		[]string{request.Method, request.Header.Get("If-Match"), body})
	require.NoError(t, session.Delete(t.Context()))
	request, _ = g.last()
	require.Equal(t, http.MethodDelete, request.Method)
	_, err = clientOf(t, g).Pool("p").Session("..").Get(t.Context())
	require.ErrorIs(t, err, api.ErrInvalid)
}

func TestOnlyAReadOrAnUnstartedChangeIsRetriedElsewhere(t *testing.T) {
	for _, c := range []struct {
		code                       api.Code
		started                    bool
		readRetried, changeRetried bool
	}{
		{api.CodeUnavailable, false, true, true}, {api.CodeUnavailable, true, true, false},
		{api.CodePoolNotFound, false, true, true},
		{api.CodeStoreUnavailable, false, true, false}, {api.CodeSessionNotFound, false, false, false},
		{api.CodeVersionConflict, false, false, false},
	} {
		bad, good := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
		bad.session = refusing(c.code, c.started)
		good.session = answering(http.StatusOK, `{"id":"a","version":1}`)
		try := func(retried bool, ask func(*Session) error) {
			t.Helper()
			client := clientOf(t, bad, good)
			chooseFirst(t, client, bad)
			before := good.served()
			err := ask(client.Pool("p").Session("a"))
			if retried {
				require.NoError(t, err, "%s", c.code)
				return
			}
			require.ErrorIs(t, err, &api.Error{Code: c.code})
			require.Equal(t, before, good.served(), "%s", c.code)
		}
		try(c.readRetried, func(s *Session) error { _, err := s.Get(t.Context()); return err })
		try(c.changeRetried, func(s *Session) error { _, err := s.Patch(t.Context(), map[string]any{}, 0); return err })
		try(c.changeRetried, func(s *Session) error { return s.Delete(t.Context()) })
	}
}

func TestAnAnonymousSessionGetsTheIDThatTheGatewayChose(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	g.session = answering(http.StatusCreated, `{"id":"temp_x","data":{"k":1},"version":1,"ttl":"5m"}`)
	session, state, err := clientOf(t, g).Pool("p").NewSession(t.Context(),
		SessionState{ID: "mine", Version: 3, Data: map[string]json.RawMessage{"k": json.RawMessage("1")}})
	require.NoError(t, err)
	require.Equal(t, "temp_x", session.ID())
	require.Equal(t, "5m", state.TTL.String())
	request, body := g.last()
	require.Equal(t, "POST /v1/sessions?pool=p", request.Method+" "+request.URL.RequestURI())
	require.JSONEq(t, `{"data":{"k":1},"programs":null,"metadata":null}`, body)
}

func TestAnImportGoesToTheGatewayThatHasTheStore(t *testing.T) {
	received := make(chan string, 1)
	refuses := serving(t, refusing(api.CodeNoWorkers, false)) // before it reads the body
	imports := serving(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		received <- string(body)
		if err != nil || r.URL.RequestURI() != "/v1/pools/p/sessions/import?any_pool=false" {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte(`{"created":1,"replaced":2,"kept":3,"expired":4}`))
	})
	for _, order := range [][]string{{refuses, imports}, {imports, refuses}} {
		c := dialed(t, Options{Gateways: order})
		done, err := c.Pool("p").ImportSessions(t.Context(), strings.NewReader("a backup"), ImportOptions{})
		require.NoError(t, err)
		require.Equal(t, "1 created, 2 replaced, 3 kept, 4 expired", done.String())
		require.Equal(t, "a backup", <-received)
	}
}

func TestSessionsAreListedByPage(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	g.session = answering(http.StatusOK, `{"sessions":[{"id":"a","version":2,"bytes":44,"ttl":"1h"}],"next":"a"}`)
	list, err := clientOf(t, g).Pool("p").Sessions(t.Context(), "0", 1)
	require.NoError(t, err)
	require.Equal(t, "a", list.Next)
	require.Equal(t, 44, list.Sessions[0].Bytes)
	request, _ := g.last()
	require.Equal(t, "/v1/sessions?after=0&limit=1&pool=p", request.URL.RequestURI())
}
