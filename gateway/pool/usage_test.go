package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process"
)

func TestTheUsageOfTheLastIncarnationsIsKept(t *testing.T) {
	p := newPoolState(&Dispatcher{}, "p")
	d := &Dispatcher{pools: map[string]*poolState{"p": p}}
	stats := p.workerStatsLocked("p/0", time.Now())
	stats.rememberEnded(&upstream{incarnation: 1})
	require.Empty(t, stats.ended, "an incarnation without calls is not kept")
	for incarnation := range int64(endedKept + 2) {
		u := &upstream{incarnation: incarnation}
		u.calls.add(false, time.Second)
		stats.rememberEnded(u)
	}
	require.Len(t, stats.ended, endedKept)
	require.Zero(t, d.endedUsage("p/0", 1))
	require.EqualValues(t, 1, d.endedUsage("p/0", 2).Requests)
	require.EqualValues(t, 1, d.endedUsage("p/0", endedKept+1).Requests)
	require.Zero(t, d.endedUsage("p/1", 2))
}

// served returns an env whose process of p/0 has served one call, with that process and its pool.
func served(t *testing.T) (e *env, proc *process.Process, p *poolState) {
	e = newEnv(t)
	proc = e.start(1)
	e.echo()
	return e, proc, e.dispatcher.knownPool("p")
}

func (e *env) requireFinalRequests(incarnation, want int64) {
	e.t.Helper()
	require.Equal(e.t, want, e.dispatcher.FinalUsage(e.t.Context(), "p/0", incarnation).Requests)
}

func TestUsageOfAnEndedProcessIsKept(t *testing.T) {
	e, proc, p := served(t)
	proc.Kill("killed by the test")
	<-proc.Done()
	e.requireFinalRequests(1, 1)
	require.Eventually(t, func() bool { return locked(p, func() bool { return p.newestLocked("p/0") == nil }) }, timeout,
		poll)
	e.requireFinalRequests(1, 1)
	require.Zero(t, e.dispatcher.FinalUsage(t.Context(), "p/0", 2))
	require.Zero(t, e.dispatcher.FinalUsage(t.Context(), "q/0", 1))
}

// The gateway may learn of a worker's next process before it has seen the previous one end.
func TestUsageIsKeptWhenTheNextProcessComesFirst(t *testing.T) {
	e, old, p := served(t)
	next := e.start(2)
	p.mu.Lock() // watch of the old upstream must wait
	old.Kill("killed by the test")
	<-old.Done()
	p.upstreamOfLocked(next)
	p.mu.Unlock()
	require.Eventually(t, func() bool { return locked(p, func() bool { return p.older == 0 }) }, timeout, poll)
	e.requireFinalRequests(1, 1)
}

// The list of processes may name one for a moment after it has ended.
func TestEndedProcessGetsNoSecondUpstream(t *testing.T) {
	e, proc, p := served(t)
	first := p.upstreamOf(proc)
	proc.Kill("killed by the test")
	<-proc.Done()
	require.Eventually(t, func() bool { return p.upstreamOf(proc) != first }, timeout, poll, "the first one is removed")
	require.Nil(t, p.upstreamOf(proc))
	e.requireFinalRequests(1, 1)
}

func TestOlderIncarnationKeepsItsUpstreamWhenTheNewestDies(t *testing.T) {
	e, proc, p := served(t)
	first, second := p.upstreamOf(proc), e.start(2)
	newest := p.upstreamOf(second)
	require.NotSame(t, first, newest)
	second.Kill("killed by the test")
	require.Eventually(t, func() bool { return p.upstreamOf(second) != newest }, timeout, poll,
		"the newest one is removed")
	require.Same(t, first, p.upstreamOf(proc))
	proc.Kill("killed by the test")
	<-proc.Done()
	e.requireFinalRequests(1, 1)
}

func TestANotificationComesAtItsCallOnce(t *testing.T) {
	e := newEnv(t)
	e.start(1)
	notified := make(chan int64, 10)
	e.dispatcher.NotifyAt("p/0", 1, 3, func() {
		usage, _ := e.dispatcher.Usage("p/0", 1)
		notified <- usage.Requests
	})
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
