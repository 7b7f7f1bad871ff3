package pool

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

// served returns an env whose process of p/0 has served one call, with that process and its pool.
func served(t *testing.T) (e *env, proc *process.Process, p *poolState) {
	e = newEnv(t)
	proc = e.start(1)
	e.echo()
	return e, proc, e.dispatcher.knownPool("p")
}

func TestCallsThatEndAfterTheirProcessCount(t *testing.T) {
	e, proc, p := served(t)
	path := e.file("held")
	call := e.call(context.Background(), "hold", strconv.Quote(path))
	e.awaitBegan(path)
	proc.Kill("killed by the test")
	<-proc.Done()
	require.ErrorIs(t, await(t, call).err, api.ErrWorkerCrashed)
	record, found := e.processes.Get("p/0", 1)
	require.True(t, found)
	require.NotSame(t, proc, record)
	usage := record.Served().Usage()
	require.Equal(t, []int64{2, 1}, []int64{usage.Requests, usage.Failed})
	require.Zero(t, record.Served().InFlight.Load())
	require.Eventually(t, func() bool { return locked(p, func() bool { return p.newestLocked("p/0") == nil }) }, timeout,
		poll)
}

func TestACallIsAwaitedAfterItsProcessHasBeenRemoved(t *testing.T) {
	e, proc, p := served(t)
	release := make(chan struct{})
	ended := background(func() error {
		return errorOf(e.dispatcher.Do(context.Background(), AnyWorker("p", "", DefaultPriority), Request{Method: "echo"},
			func(c *Call, _ Request) error { // such as the copy of an answer to a slow client
				<-release
				c.Complete(nil)
				return nil
			}))
	})
	require.Eventually(t, func() bool { return proc.Served().InFlight.Load() == 1 }, timeout, poll)
	proc.Kill("killed by the test")
	require.Eventually(t, func() bool { return locked(p, func() bool { return len(p.order) == 0 }) }, timeout, poll)
	require.False(t, locked(p, func() bool { return p.unusedLocked(time.Now()) }))
	require.False(t, locked(p, p.stats.workers["p/0"].goneSince.IsZero))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	idle := background(func() error { return p.awaitIdle(over) })
	require.Never(t, func() bool { return len(idle) == 1 }, 50*time.Millisecond, poll)
	close(release)
	require.ErrorIs(t, <-idle, context.Canceled)
	require.NoError(t, <-ended)
	require.Equal(t, int64(2), proc.Served().Usage().Requests)
	require.NoError(t, p.awaitIdle(over), "no call is left")
}

// The gateway may learn of a worker's next process before it has seen the previous one end.
func TestAProcessThatEndsAfterTheNextHasComeIsRemoved(t *testing.T) {
	e, old, p := served(t)
	next := e.start(2)
	p.mu.Lock() // watch of the old upstream must wait
	old.Kill("killed by the test")
	<-old.Done()
	p.upstreamOfLocked(next)
	p.mu.Unlock()
	require.Eventually(t, func() bool { return locked(p, func() bool { return p.older == 0 }) }, timeout, poll)
}

// The list of processes may name the newest for a moment after it has ended.
func TestOlderIncarnationKeepsItsUpstreamWhenTheNewestDies(t *testing.T) {
	e, proc, p := served(t)
	first, second := p.upstreamOf(proc), e.start(2)
	newest := p.upstreamOf(second)
	require.NotSame(t, first, newest)
	second.Kill("killed by the test")
	require.Eventually(t, func() bool { return p.upstreamOf(second) != newest }, timeout, poll,
		"the newest one is removed")
	require.Nil(t, p.upstreamOf(second), "and gets no second one")
	require.Same(t, first, p.upstreamOf(proc))
}

func TestANotificationComesAtItsCallOnce(t *testing.T) {
	e := newEnv(t)
	proc := e.start(1)
	notified := make(chan int64, 10)
	e.dispatcher.NotifyAt("p/0", 1, 3, func() { notified <- proc.Served().Usage().Requests })
	for range 2 {
		e.echo()
	}
	require.Empty(t, notified)
	e.echo()
	require.GreaterOrEqual(t, <-notified, int64(3))
	e.echo()
	e.dispatcher.NotifyAt("p/0", 1, 2, func() { notified <- 0 })
	require.Zero(t, <-notified, "it has served as many before")
	require.Empty(t, notified)
}
