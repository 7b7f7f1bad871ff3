package sessions_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/memory"
	"github.com/tempool/tempool/spec"
)

// desk answers host calls from a store in memory.
type desk struct {
	t     *testing.T
	store *memory.Store
	calls sessions.HostCalls
}

func newDesk(t *testing.T, config sessions.Config) *desk {
	store := memory.Open(config)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return &desk{t: t, store: store, calls: sessions.HostCalls{Store: store, TTL: 2 * time.Hour, AnonymousTTL: 5 * time.Minute}}
}

func (d *desk) ask(id, method, arguments string) string {
	d.t.Helper()
	answer, err := d.calls.Serve(d.t.Context(), id, method, []byte(arguments))
	require.NoError(d.t, err)
	return string(answer)
}

func (d *desk) session(id, method, arguments string) (s sessions.Session) {
	d.t.Helper()
	require.NoError(d.t, json.Unmarshal([]byte(d.ask(id, method, arguments)), &s))
	return s
}

func (d *desk) refused(code api.Code, id, method, arguments string) {
	d.t.Helper()
	answer, err := d.calls.Serve(d.t.Context(), id, method, []byte(arguments))
	require.Equal(d.t, code, api.CodeOf(err), "%s %s: %v", method, arguments, err)
	require.Nil(d.t, answer)
}

func TestTheFirstUseOfASessionMakesIt(t *testing.T) {
	for name, use := range map[string][2]string{
		"reading": {"session.get", ""}, "touching": {"session.touch", "null"}, "updating": {"session.update", `{"patch":{}}`},
		"a program": {"programs.put", `{"id":"p","program":1}`},
	} {
		d := newDesk(t, sessions.Config{})
		for id, ttl := range map[string]time.Duration{"mine": 2 * time.Hour, sessions.NewTemporaryID(): 5 * time.Minute} {
			d.ask(id, use[0], use[1])
			s, err := d.store.Get(t.Context(), id)
			require.NoError(t, err, name)
			require.Equal(t, spec.Duration(ttl), s.TTL, name)
			require.Equal(t, int64(1), s.Version, name)
		}
	}
}

func TestOtherUsesMakeNoSession(t *testing.T) {
	d := newDesk(t, sessions.Config{})
	d.refused(api.CodeSessionNotFound, "a", "session.update", `{"patch":{},"version":1}`)
	d.refused(api.CodeProgramNotFound, "a", "programs.get", `{"id":"p"}`)
	require.Equal(t, "null", d.ask("a", "programs.delete", `{"id":"p"}`))
	require.Equal(t, "null", d.ask("a", "session.delete", "{}"))
	count, err := d.store.Count(t.Context())
	require.NoError(t, err)
	require.Zero(t, count)
}

func TestAWorkerReadsAndWritesTheSession(t *testing.T) {
	still := time.Now()
	d := newDesk(t, sessions.Config{Now: func() time.Time { return still }})
	s := d.session("a", "session.update", `{"patch":{"data":{"k":"<1>"},"ttl":"10m"}}`)
	require.Equal(t, json.RawMessage(`"<1>"`), s.Data["k"])
	require.Equal(t, spec.Duration(10*time.Minute), s.TTL)
	require.Equal(t, s, d.session("a", "session.get", ""))
	d.refused(api.CodeVersionConflict, "a", "session.update", `{"patch":{"data":{"k":2}},"version":2}`)
	require.Equal(t, int64(2), d.session("a", "session.update", `{"patch":{"data":{"k":2}},"version":1}`).Version)
	require.Equal(t, spec.Duration(2*time.Hour), d.session("a", "session.update", `{"patch":{"ttl":null}}`).TTL)
	require.Equal(t, json.RawMessage("2"), d.session("a", "session.touch", "").Data["k"])
	require.Equal(t, "null", d.ask("a", "session.delete", ""))
	require.Empty(t, d.session("a", "session.get", "").Data)
}

func TestAProgramIsPutReadAndDeleted(t *testing.T) {
	d := newDesk(t, sessions.Config{})
	require.Equal(t, "null", d.ask("a", "programs.put", `{"id":"p","program":{"steps":[1,2]}}`))
	require.Equal(t, "null", d.ask("a", "programs.put", `{"id":"q","program":null}`))
	require.Equal(t, `{"steps":[1,2]}`, d.ask("a", "programs.get", `{"id":"p"}`))
	require.Equal(t, `null`, d.ask("a", "programs.get", `{"id":"q"}`))
	d.refused(api.CodeProgramNotFound, "b", "programs.get", `{"id":"p"}`)
	require.Equal(t, "null", d.ask("a", "programs.delete", `{"id":"p"}`))
	before := d.session("a", "session.get", "").Version
	require.Equal(t, "null", d.ask("a", "programs.delete", `{"id":"p"}`))
	require.Equal(t, before, d.session("a", "session.get", "").Version, "deleting nothing is no change")
	d.refused(api.CodeProgramNotFound, "a", "programs.get", `{"id":"p"}`)
}

func TestArgumentsThatDoNotFitAreRefused(t *testing.T) {
	d := newDesk(t, sessions.Config{})
	for _, c := range [][2]string{
		{"session.get", `{"id":"b"}`}, {"session.touch", `5`}, {"session.delete", `[]`}, {"session.update", ``}, {"session.update", `{}`}, {"session.update", `{"patch":{},"versoin":1}`},
		{"session.update", `{"patch":5}`}, {"session.update", `{"patch":{"id":"b"}}`}, {"session.update", `{"patch":{}} {}`}, {"programs.put", `{"id":"p"}`},
		{"programs.put", `{"program":1}`}, {"programs.get", `{}`}, {"programs.get", `{"id":5}`}, {"programs.delete", `null`}, {"session.steal", ``},
	} {
		d.refused(api.CodeInvalid, "a", c[0], c[1])
	}
	d.refused(api.CodeInvalid, "a/b", "session.get", "")
	require.False(t, sessions.Serves("session.steal"))
	require.True(t, sessions.Serves("programs.get"))
}

func TestAFullStoreIsToldToTheWorker(t *testing.T) {
	d := newDesk(t, sessions.Config{Max: 1})
	d.ask("a", "session.get", "")
	d.refused(api.CodeStoreFull, "b", "session.get", "")
	d.refused(api.CodeStoreFull, "b", "session.update", `{"patch":{}}`)
}

func TestWorkersThatMeetAtANewSessionLoseNothing(t *testing.T) {
	d := newDesk(t, sessions.Config{})
	const workers = 50
	var group sync.WaitGroup
	failures := make(chan error, workers)
	for i := range workers {
		group.Go(func() {
			_, err := d.calls.Serve(t.Context(), "a", "session.update", fmt.Appendf(nil, `{"patch":{"data":{"k%d":%d}}}`, i, i))
			failures <- err
		})
	}
	group.Wait()
	for range workers {
		require.NoError(t, <-failures)
	}
	require.Len(t, d.session("a", "session.get", "").Data, workers)
}

func TestTemporaryIDsAreRandomAndValid(t *testing.T) {
	a, b := sessions.NewTemporaryID(), sessions.NewTemporaryID()
	require.NotEqual(t, a, b)
	require.Regexp(t, `^temp_[A-Za-z0-9_-]{22}$`, a)
	require.NoError(t, sessions.CheckID(a))
	require.True(t, sessions.IsTemporary(a))
	require.False(t, sessions.IsTemporary("mine"))
}
