package pool

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// newKeyed returns an env with so many workers, whose processes are isolated by key and are forks.
func newKeyed(t *testing.T, workers int, change func(*spec.Spec)) *env {
	t.Helper()
	t.Parallel()
	e := newEnv(t)
	e.spec.Isolation.By, e.spec.Start.Fork = spec.IsolateKey, true
	change(&e.spec)
	for i := range workers {
		require.NoError(t, errorOf(e.startAs(fmt.Sprint("p/", i), 1)))
	}
	return e
}

// callOf makes a call of a key.
func (e *env) callOf(key, method string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return errorOf(e.dispatcher.CallPool(ctx, "p", Request{Method: method, Key: key, Body: []byte("[]")}))
}

// A key that waits gets the process of another one, whatever keeps the other workers from it.
func TestAKeyThatWaitsGetsAProcess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		workers int
		occupy  func(t *testing.T, e *env)
	}{
		"beside an idle key": {1, func(*testing.T, *env) {}},
		"beside a lease": {2, func(t *testing.T, e *env) {
			require.NoError(t, errorOf(e.dispatcher.Checkout(t.Context(), "p", CheckoutRequest{Holder: "h", Key: "C"})))
		}},
		"beside a suspended worker": {2, func(t *testing.T, e *env) {
			p := e.dispatcher.knownPool("p")
			locked(p, func() any {
				for _, u := range p.order {
					if !u.use.begun {
						u.suspendLocked(1, "by the test")
					}
				}
				return nil
			})
		}},
		"beside a key that is always busy": {1, func(t *testing.T, e *env) {
			for range 3 {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for t.Context().Err() == nil {
						_ = e.callOf("A", "brief")
					}
				}()
				t.Cleanup(func() { <-ended })
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newKeyed(t, c.workers, func(*spec.Spec) {})
			require.NoError(t, e.callOf("A", "pid"))
			c.occupy(t, e)
			require.NoError(t, e.callOf("B", "pid"))
		})
	}
}

// The least recently used of the keys that have been idle for a while gives way to a spare, and no other one.
func TestAnIdleKeyGivesWayToASpare(t *testing.T) {
	e := newKeyed(t, 3, func(sp *spec.Spec) { sp.Isolation.Idle = spec.Duration(time.Hour) })
	for _, key := range []string{"A", "B", "C"} {
		require.NoError(t, e.callOf(key, "pid"))
	}
	p := e.dispatcher.knownPool("p")
	bound := func() (keys []string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, u := range p.order {
			if u.use.begun && !u.use.over {
				keys = append(keys, u.use.owner.key)
			}
		}
		return keys
	}
	makeRoom := func(in time.Duration) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.makeRoomLocked(time.Now().Add(in), 0)
	}
	makeRoom(time.Minute)
	require.Len(t, bound(), 3, "they have been used a short time ago")
	for range 2 {
		makeRoom(7 * time.Minute)
		require.ElementsMatch(t, []string{hashKey("B"), hashKey("C")}, bound())
	}
	require.Equal(t, 6*time.Minute, p.order[1].expireKeyLocked(p.order[1].use.last), "when it may give way")
}

// Clients that ask at the same time for leases of one key get no more processes than it may have, before they call too.
func TestLeasesOfAKeyCountBeforeTheirFirstCall(t *testing.T) {
	e := newKeyed(t, 4, func(sp *spec.Spec) {
		sp.Isolation.MaxPerKey, sp.Queue.Timeout = 2, spec.Duration(50*time.Millisecond)
	})
	checkout := func(key string) error {
		return errorOf(e.dispatcher.Checkout(t.Context(), "p", CheckoutRequest{Holder: "h", Key: key}))
	}
	var granted atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := checkout("A"); err == nil {
				granted.Add(1)
			} else {
				assert.ErrorIs(t, err, api.ErrNoWorkers)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 2, granted.Load())
	require.ErrorIs(t, e.callOf("A", "pid"), api.ErrQueueTimeout)
	require.NoError(t, checkout("B"))
}

func TestCallsThatWaitAreRefusedWhenTheirPoolGetsKeys(t *testing.T) {
	t.Parallel()
	e, _, _ := served(t)
	held := e.hold()
	got := e.queued(t.Context(), 1, "pid", "[]")
	e.spec.Isolation.By = spec.IsolateKey
	require.NoError(t, errorOf(e.startAs("p/1", 1)))
	require.ErrorIs(t, await(t, got).err, api.ErrKeyRequired)
	held()
}

func TestSessionHooksDoNotRunInProcessesOfKeys(t *testing.T) {
	e := newKeyed(t, 1, func(sp *spec.Spec) { sp.Start.Fork = false })
	require.NoError(t, e.callOf("A", "pid"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	called, err := e.dispatcher.CallHook(ctx, "p/0", api.HookSessionRelease, "s")
	require.NoError(t, err)
	require.False(t, called, "the process may serve another key than the session's")
}

func TestAHookIsNotCalledOnceTheProcessOfItsKeyHasEnded(t *testing.T) {
	e := newKeyed(t, 1, func(sp *spec.Spec) {
		sp.Start.Fork, sp.Isolation.Env = false, map[string]string{"KEY": "key"}
	})
	u := e.dispatcher.upstreamOf("p/0", 1)
	require.False(t, u.offersHook(api.HookSuspend))
	require.NoError(t, u.callHook(t.Context(), api.HookSuspend, ""), "it may have ended since it offered the hook")
}
