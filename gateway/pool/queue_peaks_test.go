package pool

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestPeaksAreOfTheNewestIntervals(t *testing.T) {
	began := time.Now()
	q := newQueuePeaks(began)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	read := func(s int) []int64 {
		q.observe(0, at(s))
		ages, waiting := q.read(at(s))
		require.Len(t, ages, len(waiting))
		for i, age := range ages {
			require.EqualValues(t, 1000*(s%10+10*(len(ages)-1-i)), age)
		}
		return waiting
	}
	require.Equal(t, []int64{0}, read(0))
	for s, waiting := range []int{3, 9, 4} {
		q.observe(waiting, at(s))
	}
	require.Equal(t, []int64{9}, read(3), "the most at the same time, not the last")
	q.observe(2, at(10))
	require.Equal(t, []int64{9, 2}, read(19))
	require.Equal(t, []int64{9, 2, 0, 0}, read(35), "intervals in which nobody waited")
	q.observe(7, at(29))
	require.Equal(t, []int64{9, 2, 0, 7}, read(35), "a clock that was read before the lock was taken")
	newest := read(594)
	require.Len(t, newest, api.MaxRecentSamples)
	require.Equal(t, []int64{9, 2, 0, 7, 0}, newest[:5])
	require.Equal(t, []int64{2, 0, 7, 0}, read(600)[:4], "the oldest is dropped")
	require.Equal(t, slices.Repeat([]int64{0}, api.MaxRecentSamples), read(1_000_000))
	require.Zero(t, testing.AllocsPerRun(1000, func() { q.observe(1, at(2_000_000)) }),
		"it is on the path of a call that waits")
}

func TestAGatewayKnowsHowLongItsQueueWas(t *testing.T) {
	e := newEnv(t)
	require.Equal(t, api.RecentQueue{Host: "here", AgeMS: []int64{}, Waiting: []int64{}}, e.dispatcher.RecentQueue("p"),
		"a pool that this gateway does not know")
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
	peaks := func() []int64 {
		return locked(p, func() []int64 { _, waiting := p.peaks.read(time.Now()); return waiting })
	}
	require.Equal(t, []int64{4}, peaks(), "three calls and a client")
	locked(p, func() any { p.peaks.ends = time.Now(); return nil })
	require.Eventually(t, func() bool { return slices.Equal(peaks(), []int64{4, 4}) }, timeout, poll,
		"they wait in the next interval, too, though nobody else comes")

	leave()
	for _, w := range waiters {
		_, err = w.wait(ctx)
		require.Error(t, err)
	}
	_, err = client.wait(ctx)
	require.Error(t, err)
	locked(p, func() any { p.peaks.ends = time.Now(); return nil })
	recent := e.dispatcher.RecentQueue("p")
	require.True(t, recent.Valid())
	require.Equal(t, []int64{4, 4, 0}, recent.Waiting)
	require.Zero(t, recent.AgeMS[2]/1000)
}

func TestAPeakCountsWhoWaitsHoweverShortly(t *testing.T) {
	e := newEnv(t)
	p := newPoolState(e.dispatcher, "p") // nothing ticks
	p.setSpecLocked(e.spec)
	peak := func() int64 { _, waiting := p.peaks.read(time.Now()); return slices.Max(waiting) }
	target := AnyWorker("p", "", DefaultPriority)
	w, _, err := p.tryStart(newCall(t.Context(), Request{Method: "echo", Deadline: time.Now().Add(timeout)}), &target)
	require.NoError(t, err)
	require.EqualValues(t, 1, peak())
	_, err = (&checkout{pool: p, limit: timeout}).join()
	require.NoError(t, err)
	require.EqualValues(t, 2, peak())
	require.True(t, p.queue.Remove(w))
	require.EqualValues(t, 2, peak())
}
