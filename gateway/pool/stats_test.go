package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistogramCountsATimeInTheBucketThatItCloses(t *testing.T) {
	h := newHistogram([]time.Duration{time.Millisecond, 10 * time.Millisecond})
	for _, d := range []time.Duration{0, time.Millisecond, time.Millisecond + 1, 10 * time.Millisecond, time.Second} {
		h.observe(d)
	}
	times := h.read()
	require.Equal(t, map[float64]uint64{0.001: 2, 0.01: 4}, times.Buckets)
	require.EqualValues(t, 5, times.Count)
	require.Equal(t, 1012*time.Millisecond, times.Sum.Round(time.Millisecond))
}

func TestHistogramKeepsTheNewestExampleOfEachBucket(t *testing.T) {
	h, now := newHistogram([]time.Duration{time.Millisecond, 10 * time.Millisecond}), time.Now()
	require.Empty(t, h.read().Exemplars)
	for i, took := range []time.Duration{time.Second, time.Millisecond, 2 * time.Second} {
		h.illustrate(Exemplar{fmt.Sprint("trace ", i), took, now})
	}
	require.Equal(t, []Exemplar{{"trace 1", time.Millisecond, now}, {"trace 2", 2 * time.Second, now}}, h.read().Exemplars)
}

func TestHistogramBoundsRise(t *testing.T) {
	for _, bounds := range [][]time.Duration{callBounds, waitBounds} {
		for i := 1; i < len(bounds); i++ {
			require.Less(t, bounds[i-1], bounds[i])
		}
	}
}

func TestCountingACallDoesNotAllocate(t *testing.T) {
	h := newHistogram(callBounds)
	a := &workerStats{}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		h.observe(time.Second)
		a.add(true, time.Second)
	}))
}

func BenchmarkCountCall(b *testing.B) {
	h := newHistogram(callBounds)
	a := &workerStats{}
	for b.Loop() {
		a.add(false, 15*time.Microsecond)
		h.observe(15 * time.Microsecond)
	}
}

func TestWorkerStatsExpire(t *testing.T) {
	p, now := newPoolState(nil, "p"), time.Now()
	p.workerStatsLocked("p/0", now).add(false, time.Second)
	p.expireStatsLocked(now)
	p.expireStatsLocked(now.Add(workerStatsExpiry - 1))
	require.EqualValues(t, 1, p.workerStatsLocked("p/0", now).requests,
		"the worker came back and continues its counts")
	p.expireStatsLocked(now)
	p.workerStatsLocked("p/1", now.Add(workerStatsExpiry))
	require.NotContains(t, p.stats.workers, "p/0")
	require.Contains(t, p.stats.workers, "p/1")
}
