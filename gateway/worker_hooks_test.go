package gateway

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

const release = "session.release"

// hook calls a hook. The test fails if the call does.
func (e *env) hook(worker, name, session string) bool {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	called, err := e.gateway.CallHook(ctx, worker, name, session)
	require.NoError(e.t, err)
	return called
}

func TestHookRunsOnItsWorker(t *testing.T) {
	e := parallel(t, 2)
	require.True(t, e.hook("p/1", release, "mine"))
	answer := e.do("POST", to(1, "released"), nil)
	require.Equal(t, `[["mine","mine"]]`, string(answer.body))
	require.False(t, e.hook("p/0", "session.load", "mine"), "it does not offer that one, which is no error")
}

func TestHookErrors(t *testing.T) {
	e := parallel(t, 2)
	_, err := e.gateway.CallHook(t.Context(), "p/0", release, "stuck")
	require.ErrorIs(t, err, api.ErrWorkerError)
	require.ErrorContains(t, err, "not this one")
	for _, nowhere := range []string{"p/7", "q/0"} {
		require.ErrorIs(t, errorOf(e.gateway.CallHook(t.Context(), nowhere, release, "mine")), api.ErrWorkerNotFound)
	}
	lease := e.lease(1, "somebody")
	e.ok("POST", "/v1/leases/"+lease.ID+"/call/echo", "x")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, errorOf(e.gateway.CallHook(ctx, "p/1", release, "mine")), api.ErrBusy)
	require.Zero(t, e.gateway.Drain(t.Context(), "p/1", 1).CallsCut)
	require.ErrorIs(t, errorOf(e.gateway.CallHook(t.Context(), "p/1", release, "mine")), api.ErrDraining)
	require.Equal(t, 200, e.do("POST", "/v1/pools/p/call/pid", nil).status, "others are still served")
	e.gateway.Suspend(t.Context(), suspendRequest(1, "", time.Hour))
	_, err = e.gateway.CallHook(t.Context(), "p/0", release, "mine")
	require.ErrorIs(t, err, api.ErrBusy, "it says that the hook has not run")
	require.ErrorContains(t, err, "p/0 is suspended")
}

func TestHooksUnderLoadStarveNoCall(t *testing.T) {
	e := parallel(t, 2, inflight(2))
	_, stop := e.callers(12)
	for range 100 {
		require.True(t, e.hook("p/0", release, "mine"))
	}
	stop()
}

// releasing returns an env whose program writes the sessions that it releases to a file.
func releasing(t *testing.T) (e *env, released func() []string) {
	path := t.TempDir() + "/released"
	e = open(t, 1, withSpec(func(s *spec.Spec) { s.Pool.Env["RELEASED"] = path }))
	return e, func() []string {
		written, err := os.ReadFile(path + ".txt")
		if !os.IsNotExist(err) {
			require.NoError(t, err)
		}
		return strings.Fields(string(written))
	}
}

func TestTheSessionOfAQueuedCallIsReleasedByADrain(t *testing.T) {
	t.Parallel()
	e, released := releasing(t)
	first := e.heldCall("/v1/pools/p", "a", api.HeaderSession, "a")
	second := e.queued("/v1/pools/p/call/hold", quoted(e.file("b")), api.HeaderSession, "b")
	e.finish("a", first)
	e.awaitHeld(e.file("b.began"))
	drained := background(func() api.DrainResult { return e.gateway.Drain(t.Context(), "p/0", 1) })
	require.Eventually(t, func() bool { return e.gateway.Snapshot().Pools[0].Workers[0].Draining }, timeout, poll)
	e.release(e.file("b"))
	require.Zero(t, await(t, drained).CallsCut)
	require.Equal(t, 200, await(t, second).status)
	require.Equal(t, []string{"a", "b"}, released())
}

func TestAHookThatHangsLeavesTimeToReleaseTheOtherSessions(t *testing.T) {
	t.Parallel()
	e, released := releasing(t)
	for _, session := range []string{"a", "hang", "z"} {
		e.ok("POST", "/v1/pools/p/call/turn", nil, api.HeaderSession, session)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second) // the hook that hangs gets a part of it
	defer cancel()
	require.Zero(t, e.gateway.Drain(ctx, "p/0", 1).CallsCut)
	require.Equal(t, []string{"a", "z"}, released())
	require.EqualValues(t, 1, e.gateway.Snapshot().Pools[0].NotReleased)
	happened := e.follow(t, "?follow=false&type=session.not_released", "").require(api.EventSessionNotReleased)
	lost := decode[api.SessionEvent](t, happened.Data)
	require.Equal(t, "hang p/0 1", fmt.Sprint(lost.Session, " ", lost.Worker, " ", lost.Incarnation))
	require.NotEmpty(t, lost.Reason)
}
