package tempooltest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/tempooltest"
)

const timeout = 2 * time.Minute

func TestAScript(t *testing.T) {
	g := tempooltest.NewGateway(t, 1)
	full := &tempool.Error{Code: api.CodeQueueFull, Message: "full", RetryAfter: time.Second}
	own := &api.WorkerError{Code: "nothing", Message: "no such thing"}
	g.On("p", "tools/call", full, 144, tempooltest.Crash(), own, errors.New("boom"),
		tempooltest.Func(func(c tempooltest.Call) (any, error) { return c.Header.Get(api.HeaderSession), nil }))
	pool := g.Client(t).Pool("p").With(tempool.CallOptions{Session: "ada"})
	require.ErrorIs(t, pool.Call(t.Context(), "tools/call", nil, nil), tempool.ErrQueueFull)
	answer, err := tempool.Call[int](t.Context(), pool, "tools/call", 12)
	require.NoError(t, err)
	require.Equal(t, 144, answer)
	require.ErrorIs(t, pool.Call(t.Context(), "tools/call", nil, nil), tempool.ErrWorkerCrashed)
	var failure *tempool.WorkerError
	require.ErrorAs(t, pool.Call(t.Context(), "tools/call", nil, nil), &failure)
	require.Equal(t, "nothing", failure.Code)
	require.ErrorAs(t, pool.Call(t.Context(), "tools/call", nil, nil), &failure)
	require.True(t, failure.Unhandled)
	session, err := tempool.Call[string](t.Context(), pool, "tools/call", nil)
	require.NoError(t, err)
	require.Equal(t, "ada", session)
	require.Len(t, g.Calls(), 6)
	require.ErrorIs(t, g.Client(t).Pool("other").Call(t.Context(), "m", nil, nil), tempool.ErrPoolNotFound)

	g.On("p", "count", tempooltest.Stream(func(yield func(any, error) bool) {
		_ = yield(1, nil) && yield(2, nil) && yield(nil, tempooltest.Crash())
	}))
	var text string
	for piece, err := range pool.Stream(t.Context(), "count", nil) {
		text += string(piece)
		if err != nil {
			require.ErrorIs(t, err, tempool.ErrUnavailable)
		}
	}
	require.Equal(t, "1\n2\n", text)
}

func TestLeases(t *testing.T) {
	g := tempooltest.NewGateway(t, 1)
	g.On("p", "m", 1, tempooltest.Crash(), 2)
	pool := g.Client(t).Pool("p")
	checkout := func() *tempool.Lease {
		lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "me", Wait: timeout, TTL: time.Minute})
		require.NoError(t, err)
		return lease
	}
	lease := checkout()
	one, err := tempool.Call[int](t.Context(), lease, "m", nil)
	require.NoError(t, err)
	require.Equal(t, 1, one)
	require.ErrorIs(t, pool.Call(t.Context(), "m", nil, nil), tempool.ErrQueueTimeout)
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Notify(t.Context(), "note", nil))
	require.NoError(t, lease.Checkin(t.Context(), tempool.OutcomeOK))

	lease = checkout()
	require.ErrorIs(t, lease.Call(t.Context(), "m", nil, nil), tempool.ErrWorkerCrashed)
	require.ErrorIs(t, lease.Call(t.Context(), "m", nil, nil), tempool.ErrLeaseFenced)
	lease = checkout()
	require.EqualValues(t, 2, lease.Incarnation)
	g.Fence("p")
	require.ErrorIs(t, lease.Call(t.Context(), "m", nil, nil), tempool.ErrLeaseFenced)
}

func TestConcurrentRequests(t *testing.T) {
	g := tempooltest.NewGateway(t, 1)
	g.On("p", "m", tempooltest.Func(func(c tempooltest.Call) (any, error) {
		if string(c.Body) < "4" {
			return nil, tempooltest.Crash()
		}
		return 1, nil
	}))
	pool := g.Client(t).Pool("p")
	concurrently := func(do func(i int)) {
		var doing sync.WaitGroup
		for i := range 8 {
			doing.Go(func() { do(i) })
		}
		doing.Wait()
	}
	holder := strings.Repeat("me", 1<<16) // it takes time to parse
	for range 20 {
		concurrently(func(i int) { _ = pool.Call(t.Context(), "m", i, nil) })
		var granted atomic.Int64
		concurrently(func(int) {
			if _, err := pool.TryCheckout(t.Context(), tempool.CheckoutOptions{Holder: holder, NoRenew: true}); err == nil {
				granted.Add(1)
			}
		})
		require.EqualValues(t, 1, granted.Load(), "one worker has one lease")
		g.Fence("p")
	}
}

func TestMap(t *testing.T) {
	g := tempooltest.NewGateway(t, 4)
	var open, most atomic.Int64
	all := make(chan struct{}) // closed when four calls are open
	g.On("p", "m", tempooltest.Func(func(c tempooltest.Call) (any, error) {
		n := open.Add(1)
		defer open.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == 4 {
			select {
			case <-all:
			default:
				close(all)
			}
		}
		<-all
		if string(c.Body) == "2" {
			return nil, errors.New("two")
		}
		return string(c.Body), nil
	}))
	pool := g.Client(t).Pool("p")
	var got []string
	for answer, err := range tempool.Map[string](t.Context(), pool, "m", slices.Values([]int{0, 1, 2, 3, 4, 5, 6}), 4) {
		if err != nil {
			answer = "failed"
		}
		got = append(got, answer)
	}
	require.Equal(t, []string{"0", "1", "failed", "3", "4", "5", "6"}, got)
	require.EqualValues(t, 4, most.Load())

	endless := func(yield func(int) bool) {
		for n := 3; yield(n); n++ {
		}
	}
	for range tempool.Map[string](t.Context(), pool, "m", endless, 2) {
		break // cancels the rest, and ends the items
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range tempool.Map[string](ctx, pool, "m", endless, 2) {
		cancel()
		last = err
	}
	require.ErrorIs(t, last, context.Canceled)
}
