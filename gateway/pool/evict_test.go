package pool

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions/affinity"
)

func TestUnusedPoolIsEvicted(t *testing.T) {
	e := newEnv(t)
	e.dispatcher.evictAfter = 20 * time.Millisecond
	before := runtime.NumGoroutine()
	for incarnation := int64(1); incarnation <= 3; incarnation++ {
		proc := e.start(incarnation)
		e.echo()
		require.NotNil(t, e.dispatcher.knownPool("p"))
		proc.Kill("killed by the test")
		<-proc.Done()
		require.Eventually(t, func() bool { return e.dispatcher.knownPool("p") == nil }, timeout, poll)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, timeout, poll, "%d goroutines before",
		before)
}

func TestCallToAnEvictedPoolUsesItsSuccessor(t *testing.T) {
	e := newEnv(t)
	e.dispatcher.evictAfter = time.Millisecond
	evicted := e.dispatcher.poolState("p")
	require.Eventually(t, func() bool { return e.dispatcher.knownPool("p") == nil }, timeout, poll)
	u := evicted.upstreamOf(e.start(1))
	require.NotNil(t, u)
	require.NotSame(t, evicted, u.pool)
	c := newCall(t.Context(), Request{Method: "echo", Deadline: time.Now().Add(timeout)})
	target := AnyWorker("p", "", DefaultPriority)
	_, admission, err := evicted.tryStart(c, &target)
	require.NoError(t, err)
	require.Equal(t, admitted, admission)
	require.Same(t, u, c.upstream)
	c.Complete(nil)
}

func TestPoolInUseIsNotEvicted(t *testing.T) {
	config := Config{Affinity: affinity.New(nil)}
	p := newPoolState(&Dispatcher{config: config, evictAfter: time.Minute}, "p")
	now := time.Now()
	require.True(t, p.unusedLocked(now))
	require.False(t, p.evict(now.Add(59*time.Second)))
	p.roster.at = now.Add(30 * time.Second)
	require.False(t, p.evict(now.Add(time.Minute)), "the roster was read since")
	p.queue.Push(newWaiter(p, newCall(t.Context(), Request{}), &Target{}))
	require.False(t, p.evict(now.Add(time.Hour)))
	require.True(t, p.queue.Remove(p.queue.First(line{})))
	require.False(t, p.evict(now.Add(time.Hour)), "the time counts from the last use")
	require.True(t, p.evict(now.Add(time.Hour+time.Minute)))
	require.True(t, p.evicted)
}

func TestUnknownPoolLeavesNoState(t *testing.T) {
	e := newEnv(t)
	require.ErrorContains(t, errorOf(e.dispatcher.CallPool(t.Context(), "nope", Request{Method: "echo"})), "no pool nope")
	require.Nil(t, e.dispatcher.knownPool("nope"))

	// Whoever invents names of pools while Temporal is away must not make the gateway remember them.
	e.control.mu.Lock()
	e.control.down = true
	e.control.mu.Unlock()
	request := CheckoutRequest{Holder: "me", WaitMS: 60_000}
	require.ErrorIs(t, errorOf(e.dispatcher.Checkout(t.Context(), "invented", request)), api.ErrUnavailable)
	require.Nil(t, e.dispatcher.knownPool("invented"))
}
