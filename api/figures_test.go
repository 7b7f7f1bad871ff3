package api

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// timesOf counts durations as a gateway does.
func timesOf(all ...time.Duration) (t Times) {
	for _, d := range all {
		t = t.plus(Times{{TimeBucketFrom(TimeBucket(d)), 1}})
	}
	return t
}

func TestTheBucketsOfTimesAreQuartersOfPowersOfTwo(t *testing.T) {
	for bucket := range TimeBuckets {
		from := time.Duration(TimeBucketFrom(bucket)) * time.Microsecond
		require.Equal(t, bucket, TimeBucket(from))
		require.Equal(t, max(0, bucket-1), TimeBucket(from-time.Microsecond))
	}
	require.Equal(t, TimeBuckets-1, TimeBucket(1000*time.Hour))
}

func TestQuantilesOfAddedTimesAreNearTheTrueOnes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	for range 3000 {
		all = append(all, time.Duration(random.ExpFloat64()*float64(20*time.Millisecond)))
	}
	both := timesOf(all[:1000]...).plus(timesOf(all[1000:]...))
	slices.Sort(all)
	for _, share := range []float64{0.5, 0.95, 0.99, 1} {
		require.InEpsilon(t, all[int(share*float64(len(all)))-1], both.Quantile(share), 0.1, share)
	}
	require.Zero(t, Times{}.Quantile(0.5))
	mostly := Times{{0, 96}, {TimeBucketFrom(80), 4}}
	require.Zero(t, mostly.Quantile(0.95), "a call that did not wait")
	require.Positive(t, mostly.Quantile(0.99))
}

func TestFiguresAreAddedAndShownAsRates(t *testing.T) {
	here := Figures{Seconds: 60, Calls: 30, Errors: Counts{{"worker_error", 3}}, Queue: 2, ServingUS: 120e6}
	there := Figures{Seconds: 64, Calls: 34, Errors: Counts{{"worker_error", 1}, {"queue_full", 12}}, Queue: 3}
	both, later := here, here
	both.Add(there, true)
	r := both.Rates()
	require.InDelta(t, 1, r.CallsPerSecond, 1e-9)
	require.InDelta(t, 16.0/64, r.Failing(), 1e-9)
	require.InDelta(t, 4.0/64, r.ErrorsPerSecond["worker_error"], 1e-9)
	require.EqualValues(t, 5, r.Queue, "they may have waited at the same time")
	require.InDelta(t, 120.0/64, r.InFlight, 1e-9)
	require.Equal(t, Counts{{"worker_error", 3}}, here.Errors, "what is added stays as it is")
	later.Add(there, false)
	require.InDelta(t, 124, later.Seconds, 0)
	require.EqualValues(t, 3, later.Queue)
	require.Equal(t, []MethodFigures{{"a", 3, 1, 30}, {"b", 1, 0, 5}},
		AddMethods(MethodFigures{"b", 1, 0, 5}, MethodFigures{"a", 1, 0, 10}, MethodFigures{"a", 2, 1, 20}))
}
