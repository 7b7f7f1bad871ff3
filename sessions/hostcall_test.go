package sessions_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/spec"
)

// hostCallTest serves host calls from a memory store.
type hostCallTest struct {
	t     *testing.T
	store *embedded.Store
	calls sessions.HostCalls
}

func newHostCallTest(t *testing.T, config sessions.Config) *hostCallTest {
	store := embedded.InMemory(config)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return &hostCallTest{t: t, store: store,
		calls: sessions.HostCalls{Store: store, TTL: 2 * time.Hour, AnonymousTTL: 5 * time.Minute}}
}

func (h *hostCallTest) call(id, method, arguments string) string {
	h.t.Helper()
	result, err := h.calls.Serve(h.t.Context(), id, method, []byte(arguments))
	require.NoError(h.t, err)
	return string(result)
}

func (h *hostCallTest) session(id, method, arguments string) (s sessions.Session) {
	h.t.Helper()
	require.NoError(h.t, json.Unmarshal([]byte(h.call(id, method, arguments)), &s))
	return s
}

func (h *hostCallTest) rejects(code api.Code, id, method, arguments string) {
	h.t.Helper()
	result, err := h.calls.Serve(h.t.Context(), id, method, []byte(arguments))
	require.Equal(h.t, code, api.CodeOf(err), "%s %s: %v", method, arguments, err)
	require.Nil(h.t, result)
}

func TestTheFirstUseCreatesTheSession(t *testing.T) {
	for name, use := range map[string][2]string{
		"get": {"session.get", ""}, "touch": {"session.touch", "null"}, "update": {"session.update", `{"patch":{}}`},
		"put a program": {"programs.put", `{"id":"p","program":1}`},
	} {
		h := newHostCallTest(t, sessions.Config{})
		for id, ttl := range map[string]time.Duration{"mine": 2 * time.Hour, sessions.NewTemporaryID(): 5 * time.Minute} {
			h.call(id, use[0], use[1])
			s, err := h.store.Get(t.Context(), id)
			require.NoError(t, err, name)
			require.Equal(t, spec.Duration(ttl), s.TTL, name)
			require.Equal(t, int64(1), s.Version, name)
		}
	}
}

func TestGetUpdateTouchAndDelete(t *testing.T) {
	now := time.Now()
	h := newHostCallTest(t, sessions.Config{Now: func() time.Time { return now }})
	h.rejects(api.CodeSessionNotFound, "a", "session.update", `{"patch":{},"version":1}`)
	h.rejects(api.CodeProgramNotFound, "a", "programs.get", `{"id":"p"}`)
	require.Equal(t, "null", h.call("a", "programs.delete", `{"id":"p"}`))
	require.Equal(t, "null", h.call("a", "session.delete", "{}"))
	requireCount(t, 0, h.store) // none of these creates the session
	s := h.session("a", "session.update", `{"patch":{"data":{"k":"<1>"},"ttl":"10m"}}`)
	require.Equal(t, json.RawMessage(`"<1>"`), s.Data["k"])
	require.Equal(t, spec.Duration(10*time.Minute), s.TTL)
	require.Equal(t, s, h.session("a", "session.get", ""))
	h.rejects(api.CodeVersionConflict, "a", "session.update", `{"patch":{"data":{"k":2}},"version":2}`)
	require.Equal(t, int64(2), h.session("a", "session.update", `{"patch":{"data":{"k":2}},"version":1}`).Version)
	require.Equal(t, spec.Duration(2*time.Hour), h.session("a", "session.update", `{"patch":{"ttl":null}}`).TTL)
	require.Equal(t, json.RawMessage("2"), h.session("a", "session.touch", "").Data["k"])
	require.Equal(t, "null", h.call("a", "session.delete", ""))
	require.Empty(t, h.session("a", "session.get", "").Data)
}

func TestPrograms(t *testing.T) {
	h := newHostCallTest(t, sessions.Config{})
	require.Equal(t, "null", h.call("a", "programs.put", `{"id":"p","program":{"steps":[1,2]}}`))
	require.Equal(t, "null", h.call("a", "programs.put", `{"id":"q","program":null}`))
	require.Equal(t, `{"steps":[1,2]}`, h.call("a", "programs.get", `{"id":"p"}`))
	require.Equal(t, `null`, h.call("a", "programs.get", `{"id":"q"}`))
	h.rejects(api.CodeProgramNotFound, "b", "programs.get", `{"id":"p"}`)
	require.Equal(t, "null", h.call("a", "programs.delete", `{"id":"p"}`))
	before := h.session("a", "session.get", "").Version
	require.Equal(t, "null", h.call("a", "programs.delete", `{"id":"p"}`))
	require.Equal(t, before, h.session("a", "session.get", "").Version, "deleting a missing program changes nothing")
	h.rejects(api.CodeProgramNotFound, "a", "programs.get", `{"id":"p"}`)
}

func TestInvalidArgumentsAreRejected(t *testing.T) {
	h := newHostCallTest(t, sessions.Config{})
	for _, c := range [][2]string{
		{"session.get", `{"id":"b"}`}, {"session.touch", `5`}, {"session.delete", `[]`}, {"session.update", ``},
		{"session.update", `{}`}, {"session.update", `{"patch":{},"versoin":1}`},
		{"session.update", `{"patch":5}`}, {"session.update", `{"patch":{"id":"b"}}`}, {"session.update", `{"patch":{}} {}`},
		{"programs.put", `{"id":"p"}`},
		{"programs.put", `{"program":1}`}, {"programs.get", `{}`}, {"programs.get", `{"id":5}`}, {"programs.delete", `null`},
		{"session.unknown", ``},
	} {
		h.rejects(api.CodeInvalid, "a", c[0], c[1])
	}
	h.rejects(api.CodeInvalid, "a/b", "session.get", "")
	h.rejects(api.CodeInvalid, "mcp:a", "session.update", `{"patch":{}}`)
	require.False(t, sessions.Serves("session.unknown"))
	require.True(t, sessions.Serves("programs.get"))
}

func TestAFullStoreFailsTheHostCall(t *testing.T) {
	h := newHostCallTest(t, bounded(1, spec.OnFullRefuse))
	h.call("a", "session.get", "")
	h.rejects(api.CodeStoreFull, "b", "session.get", "")
	h.rejects(api.CodeStoreFull, "b", "session.update", `{"patch":{}}`)
}

func TestConcurrentFirstUpdatesAreAllApplied(t *testing.T) {
	h := newHostCallTest(t, sessions.Config{})
	const workers = 50
	for _, err := range concurrently(workers, func(i int) error {
		patch := fmt.Appendf(nil, `{"patch":{"data":{"k%d":%d}}}`, i, i)
		return errorOf(h.calls.Serve(t.Context(), "a", "session.update", patch))
	}) {
		require.NoError(t, err)
	}
	require.Len(t, h.session("a", "session.get", "").Data, workers)
}

func TestTemporaryIDsAreRandomAndValid(t *testing.T) {
	a, b := sessions.NewTemporaryID(), sessions.NewTemporaryID()
	require.NotEqual(t, a, b)
	require.Regexp(t, `^temp_[A-Za-z0-9_-]{22}$`, a)
	require.NoError(t, sessions.CheckID(a))
	require.True(t, sessions.IsTemporary(a))
	require.False(t, sessions.IsTemporary("mine"))
}
