package pool

import (
	"fmt"
	"math"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
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
	s, a := newPoolStats(), &workerStats{}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.countCall(time.Second, "")
		a.add(true, time.Second)
	}))
}

func BenchmarkCountCall(b *testing.B) {
	s, a := newPoolStats(), &workerStats{}
	for b.Loop() {
		a.add(false, 15*time.Microsecond)
		s.countCall(15*time.Microsecond, "")
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
