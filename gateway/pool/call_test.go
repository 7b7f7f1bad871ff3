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

// result is the end of a call.
type result struct {
	answer *Response
	err    error
}

// call makes a call in the background.
func (e *env) call(ctx context.Context, method, body string) <-chan result {
	return background(func() result {
		answer, err := e.dispatcher.CallPool(ctx, "p", Request{Method: method, Body: []byte(body)})
		return result{answer, err}
	})
}

// background calls run in a goroutine and delivers its result.
func background[T any](run func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- run() }()
	return done
}

func await[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(timeout):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// queued makes a call in the background and waits until it is the last of so many in the queue.
func (e *env) queued(ctx context.Context, n int, method, body string) <-chan result {
	e.t.Helper()
	done := e.call(ctx, method, body)
	require.Eventually(e.t, func() bool {
		p := e.dispatcher.knownPool("p")
		return p != nil && locked(p, p.queue.Len) == n
	}, timeout, poll)
	return done
}

func (e *env) file(name string) string { return filepath.Join(e.t.TempDir(), name) }

// awaitBegan waits until a call of hold or stubborn runs.
func (e *env) awaitBegan(path string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { _, err := os.Stat(path + ".began"); return err == nil }, timeout, poll)
}

func (e *env) letGo(path string) { require.NoError(e.t, os.WriteFile(path, nil, 0o600)) }

// TestAFatalErrorCountsAlthoughItsCallerHasLeft: the process must not be used again, whoever learns of that.
func TestAFatalErrorCountsAlthoughItsCallerHasLeft(t *testing.T) {
	e := newEnv(t)
	e.start(1)
	ctx, leave := context.WithCancel(t.Context())
	path := e.file("held")
	left := e.call(ctx, "fatal_anyway", strconv.Quote(path))
	e.awaitBegan(path)
	leave()
	require.ErrorIs(t, await(t, left).err, api.ErrCancelled)
	e.letGo(path)
	require.Eventually(t, func() bool { return len(e.reported()) == 1 }, timeout, poll)
	require.True(t, e.reported()[0].replace)
	require.Contains(t, e.reported()[0].reason, "the worker asked to be replaced")
}
