package cli

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func progressOf(moved, total int) api.SessionProgress {
	return api.SessionProgress{Total: total, SessionMoves: api.SessionMoves{Moved: moved}}
}

// poolThatMoves is a control plane whose pool python moves sessions with this result.
func poolThatMoves(moves api.SessionMoves, err error) *fakeControlPlane {
	return newFakeControlPlane(&fakePool{name: "python", migration: &fakeMigration{
		progress: []api.SessionProgress{progressOf(1, 4), progressOf(1, 4), progressOf(3, 4)}, done: make(chan struct{}),
		moves: moves, err: err,
	}})
}

func TestMovingSessionsShowsProgressAndResult(t *testing.T) {
	moves := api.SessionMoves{Pool: "python", Worker: "python/2", Moved: 4, Flows: []api.SessionFlow{
		{From: "python/2", To: "python/0", Count: 3}, {To: "python/1", Count: 1},
	}}
	f := poolThatMoves(moves, nil)
	r := succeed(t, f, "sessions", "evacuate", "python/2", "--exclude-for", "1h", "--reason", "new disk")
	require.Equal(t, lines("4 sessions moved", "FROM      TO        SESSIONS", "python/2  python/0  3",
		"-         python/1  1"), r.out)
	require.Equal(t, lines("1 of 4 sessions moved", "3 of 4 sessions moved"), r.err)
	require.Equal(t, []string{"evacuate python/2 for 1h: new disk"}, f.requests)

	f = poolThatMoves(moves, nil)
	r = succeed(t, f, "sessions", "rebalance", "python", "--weight", "0=2,1=1", "-o", "json")
	require.Empty(t, r.err)
	require.Equal(t, moves, decode[api.SessionMoves](t, r))
	require.Equal(t, []string{"rebalance the sessions of pool python {python map[0:2 1:1] 0s}"}, f.requests)

	f = poolThatMoves(api.SessionMoves{Session: "mine", Note: "it is bound to python/1 already"}, nil)
	r = succeed(t, f, "sessions", "migrate", "python", "mine", "--to", "python/1")
	require.Equal(t, "0 sessions moved: it is bound to python/1 already\n", r.out)
	require.Equal(t, []string{"move session mine to python/1 {python mine python/1 0s}"}, f.requests)
}

func TestSkippedSessionsAreAFailure(t *testing.T) {
	moves := api.SessionMoves{Pool: "python", Worker: "python/2", Moved: 1, Skipped: 1,
		Flows: []api.SessionFlow{{From: "python/2", To: "python/0", Count: 1}},
		Skips: []api.SessionSkip{{Session: "mine", From: "python/2", To: "python/1", Code: api.CodeWorkerError,
			Reason: "it is stuck", NotUndone: "it was not loaded"}}}
	r := fail(t, poolThatMoves(moves, nil), "sessions", "evacuate", "python/2")
	require.Contains(t, r.out, "1 session moved, 1 not\n")
	require.Contains(t, r.out, "mine       python/2  python/1  it is stuck; not undone: it was not loaded\n")
	require.Contains(t, r.err, "tempool: 1 session could not be moved; the first: it is stuck\n")

	r = fail(t, poolThatMoves(moves, nil), "sessions", "evacuate", "python/2", "-o", "json")
	require.Equal(t, "worker_error", failure(t, r).Code)
	require.True(t, json.Valid([]byte(r.out)))

	undone := api.Errorf(api.CodeWorkerCrashed, "session mine did not move to python/1, and all is as it was: it ended")
	r = fail(t, poolThatMoves(api.SessionMoves{}, undone), "sessions", "migrate", "python", "mine", "--to", "python/1",
		"-o", "json")
	require.Equal(t, "worker_crashed", failure(t, r).Code)
	require.Empty(t, r.out)
}

func TestMovingSessionsContinuesWithoutAWait(t *testing.T) {
	endless := newFakeControlPlane(&fakePool{name: "python", migration: &fakeMigration{done: make(chan struct{})}})
	r := fail(t, endless, "sessions", "rebalance", "python", "--wait-timeout", "20ms", "-o", "json")
	require.Equal(t, "timeout", failure(t, r).Code)
	require.Contains(t, failure(t, r).Message, "workflow tempool/python/sessions/rebalance continues")

	r = succeed(t, endless, "sessions", "rebalance", "python", "--no-wait", "-o", "json")
	require.JSONEq(t, `{"workflow_id":"tempool/python/sessions/rebalance"}`, r.out)
}
