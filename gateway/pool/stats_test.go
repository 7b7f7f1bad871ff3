package pool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestCountingACallDoesNotAllocate(t *testing.T) {
	s, a, now := newPoolStats("p"), &workerStats{}, time.Now()
	count := func() {
		now = now.Add(time.Second)
		s.countCall(time.Second, "")
		a.served.Add(true, time.Second)
		a.rate.wait(10, now)
		a.rate.add(now)
		s.figures.count("tools/call", "", time.Millisecond, time.Second, now)
	}
	for range 100 { // the figures of a minute, and the seconds of one
		count()
	}
	require.Zero(t, testing.AllocsPerRun(100, count))
}

func TestWorkerStatsExpire(t *testing.T) {
	p, now := newPoolState(nil, "p"), time.Now()
	p.workerStatsLocked("p/0", now).served.Add(false, time.Second)
	p.expireStatsLocked(now.Add(time.Hour))
	p.stats.workers["p/0"].goneSince = now
	p.expireStatsLocked(now.Add(workerStatsExpiry - 1))
	back := p.workerStatsLocked("p/0", now)
	require.EqualValues(t, 1, back.served.Usage().Requests, "the worker came back and continues its counts")
	p.stats.workers["p/0"].goneSince = now
	p.workerStatsLocked("p/1", now.Add(workerStatsExpiry))
	require.NotContains(t, p.stats.workers, "p/0")
	require.Contains(t, p.stats.workers, "p/1")
}

func TestAGatewayKnowsHowLongItsQueueWas(t *testing.T) {
	e := newEnv(t)
	require.Equal(t, api.RecentQueue{Host: "here", Minutes: []api.Figures{},
		Methods: []api.MethodFigures{}}, e.dispatcher.RecentQueue("p"), "a pool that this gateway does not know")
	require.Nil(t, e.dispatcher.knownPool("p"))
	p := e.dispatcher.poolState("p")
	locked(p, func() any { p.setSpecLocked(e.spec); return nil })
	ctx, leave := context.WithCancel(t.Context())
	var waiters []*waiter
	for range 3 {
		target := AnyWorker("p", "", DefaultPriority)
		w, admission, err := p.tryStart(newCall(ctx, Request{Method: "echo", Deadline: time.Now().Add(timeout)}), &target)
		require.NoError(t, err)
		require.Equal(t, mustQueue, admission)
		waiters = append(waiters, w)
	}
	client, err := (&checkout{pool: p, limit: timeout}).join()
	require.NoError(t, err)
	peak := func() (most int64) {
		if f := p.stats.figures.lastMinute(time.Now()); f != nil {
			most = f.Queue
		}
		return most
	}
	nextMinute := func() {
		f := p.stats.figures
		f.update(time.Now(), func(*api.Figures) { f.began = f.began.Add(-2 * time.Minute) })
	}
	require.EqualValues(t, 4, peak(), "three calls and a client")
	nextMinute()
	require.Eventually(t, func() bool { return peak() == 4 }, timeout, poll,
		"they wait in the next minute, too, though nobody else comes")

	leave()
	for _, w := range waiters {
		require.Error(t, errorOf(w.wait(ctx)))
	}
	require.Error(t, errorOf(client.wait(ctx)))
	nextMinute()
	recent := e.dispatcher.RecentQueue("p")
	require.True(t, recent.Valid())
	var most []int64
	for _, minute := range recent.Minutes {
		most = append(most, minute.Queue)
	}
	require.Equal(t, []int64{4, 0, 4, 0}, most)
	require.Zero(t, peak())
}
