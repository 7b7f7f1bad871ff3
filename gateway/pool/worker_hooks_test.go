package pool

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

const release = "session.release"

func TestHookThatGivesUpReleasesItsReservation(t *testing.T) {
	e := newEnv(t)
	e.start(1)
	e.echo()
	p := e.dispatcher.knownPool("p")
	u := locked(p, func() *upstream { return p.upstreams["p/0"] })
	held := e.hold()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := e.dispatcher.CallHook(ctx, "p/0", release, "mine")
	require.ErrorIs(t, err, api.ErrBusy)
	require.Zero(t, locked(p, p.queue.Len))
	require.Equal(t, 1, locked(p, func() int { return u.inFlight }))
	held()
}

func TestHookIsNextWhenTheCallInFlightEnds(t *testing.T) {
	e := newEnv(t)
	e.start(1)
	e.echo()
	p := e.dispatcher.knownPool("p")
	held := e.hold()
	queued := make(chan string, 1)
	go func() {
		response, err := e.dispatcher.CallPool(context.Background(), "p", Request{Method: "released"})
		if err != nil {
			queued <- err.Error()
			return
		}
		queued <- string(response.Body)
	}()
	require.Eventually(t, func() bool { return locked(p, func() bool { return p.queue.Len() == 1 }) }, timeout, poll)
	hooked := make(chan error, 1)
	go func() { _, err := e.dispatcher.CallHook(context.Background(), "p/0", release, "mine"); hooked <- err }()
	require.Eventually(t, func() bool { return locked(p, p.queue.Len) == 2 }, timeout, poll)
	held()
	require.NoError(t, <-hooked)
	require.Equal(t, `[["mine","mine"]]`, <-queued, "it was queued before the hook and served after it")
}

// hold starts a call that holds p/0 until release is called.
func (e *env) hold() (release func()) {
	e.t.Helper()
	path := filepath.Join(e.t.TempDir(), "held")
	done := make(chan error, 1)
	go func() {
		_, err := e.dispatcher.CallPool(context.Background(), "p", Request{Method: "hold", Body: []byte(strconv.Quote(path))})
		done <- err
	}()
	require.Eventually(e.t, func() bool { _, err := os.Stat(path + ".began"); return err == nil }, timeout, poll)
	return func() {
		require.NoError(e.t, os.WriteFile(path, nil, 0o600))
		require.NoError(e.t, <-done)
	}
}
