package pool

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestTimesAreCountedInTheBucketThatTheyCloseWithTheNewestExample(t *testing.T) {
	s := newPoolStats()
	for i, took := range []time.Duration{0, 50 * time.Microsecond, 50*time.Microsecond + 1, time.Hour} {
		s.countCall(took, "")
		s.countCall(took, fmt.Sprint("trace ", i))
	}
	var out dto.Metric
	require.NoError(t, s.calls.Write(&out))
	require.EqualValues(t, 8, out.Histogram.GetSampleCount())
	require.InDelta(t, 7200.0002, out.Histogram.GetSampleSum(), 1e-6)
	for i, want := range []struct {
		count   uint64
		example string
	}{{4, "trace 1"}, {6, "trace 2"}} {
		bucket := out.Histogram.Bucket[i]
		require.Equal(t, want.count, bucket.GetCumulativeCount())
		require.Equal(t, want.example, bucket.Exemplar.Label[0].GetValue())
	}
	last := out.Histogram.Bucket[len(out.Histogram.Bucket)-1]
	require.True(t, math.IsInf(last.GetUpperBound(), 1), "what is beyond the last bound has an example, too")
	require.Equal(t, "trace 3", last.Exemplar.Label[0].GetValue())
}

func TestCountingACallDoesNotAllocate(t *testing.T) {
	s, a, now := newPoolStats(), &workerStats{}, time.Now()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.countCall(time.Second, "")
		a.add(true, time.Second)
		s.figures.count("tools/call", "", time.Millisecond, time.Second, now)
	}))
}

func TestWorkerStatsExpire(t *testing.T) {
	p, now := newPoolState(nil, "p"), time.Now()
	p.workerStatsLocked("p/0", now).add(false, time.Second)
	p.expireStatsLocked(now)
	p.expireStatsLocked(now.Add(workerStatsExpiry - 1))
	require.EqualValues(t, 1, p.workerStatsLocked("p/0", now).requests, "the worker came back and continues its counts")
	p.expireStatsLocked(now)
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

func TestAPeakCountsWhoWaitsHoweverShortly(t *testing.T) {
	e := newEnv(t)
	p := newPoolState(e.dispatcher, "p") // nothing ticks
	p.setSpecLocked(e.spec)
	peak := func() int64 { return p.stats.figures.lastMinute(time.Now()).Queue }
	target := AnyWorker("p", "", DefaultPriority)
	w, _, err := p.tryStart(newCall(t.Context(), Request{Method: "echo", Deadline: time.Now().Add(timeout)}), &target)
	require.NoError(t, err)
	require.EqualValues(t, 1, peak())
	require.NoError(t, errorOf((&checkout{pool: p, limit: timeout}).join()))
	require.EqualValues(t, 2, peak())
	require.True(t, p.queue.Remove(w))
	require.EqualValues(t, 2, peak())
}
