package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
)

const oneMB = 1_000_000

// memorySamples returns one observation per pause.
func memorySamples(pause time.Duration, mb ...float64) []policy.Observation {
	list := make([]policy.Observation, len(mb))
	for i, size := range mb {
		list[i] = policy.Observation{At: time.Unix(1000, 0).Add(time.Duration(i) * pause), MemoryBytes: int64(size * oneMB),
			Score: 100}
	}
	return list
}

func TestABaselineIsTheMedianOfTheFirstMinuteAfterACall(t *testing.T) {
	samples := memorySamples(10*time.Second, 50, 50, 50, 800, 820, 830, 810, 1200, 820, 820, 5000)
	served := samples[3].At // it has loaded its data in the first call
	require.Zero(t, policy.Baseline(samples, time.Time{}), "no call was served")
	require.Zero(t, policy.Baseline(samples[:8], served), "the minute is not over")
	require.EqualValues(t, 820*oneMB, policy.Baseline(samples[:10], served))
	require.EqualValues(t, 820*oneMB, policy.Baseline(samples, served), "later samples change nothing")
	slow := memorySamples(time.Minute, 60, 50, 70, 500)
	require.Zero(t, policy.Baseline(slow[:2], slow[0].At), "too few samples")
	require.EqualValues(t, 60*oneMB, policy.Baseline(slow, slow[0].At), "the first three, for the minute has only two")
}

func TestALimitByTheBaselineIsThreeTimesAndAtLeastHalfAGibibyte(t *testing.T) {
	require.EqualValues(t, 512<<20, policy.AutoMaxMemory(30*oneMB))
	require.EqualValues(t, 2400*oneMB, policy.AutoMaxMemory(800*oneMB))

	require.Equal(t, []float64{1200, 1600, 2400, 3200}, policy.AutoMemoryBands(800*oneMB))
	small := policy.AutoMemoryBands(30 * oneMB)
	require.InDelta(t, 256<<20, small[0]*oneMB, oneMB)
	require.InDelta(t, 512<<20, small[2]*oneMB, oneMB, "the limit and the bands agree")
}

func TestWithoutABaselineOnlySteadyGrowthCounts(t *testing.T) {
	series := func(from, step float64, n int) (mb []float64) {
		for i := range n {
			mb = append(mb, from+float64(i)*step)
		}
		return mb
	}
	for name, c := range map[string]struct {
		mb   []float64
		want bool
	}{
		"a leak of 20 MB a second":                       {series(30, 20, 27), true},
		"the same, a moment before it reaches the limit": {series(30, 20, 26), false},
		"a leak of a large program needs more":           {series(800, 20, 60), false},
		"until it is three times as large":               {series(800, 20, 85), true},
		"800 MB loaded within ten seconds":               {append(series(30, 80, 10), series(800, 0, 50)...), false},
		"800 MB at once":                                 {append(series(30, 0, 30), series(830, 0, 1)...), false},
		"a program that needs 800 MB":                    {series(800, 0.1, 60), false},
		"nothing is known":                               {nil, false},
		"a browser whose memory goes up and down": {[]float64{100, 600, 200, 700, 150, 650, 300, 600, 200, 500, 100,
			600, 200, 700, 150, 650, 300, 600, 200, 700}, false},
		"800 MB loaded within eight seconds, still rising": {append(series(30, 0, 22), series(30, 100, 9)...), false},
	} {
		t.Run(name, func(t *testing.T) {
			reason := policy.RotateWithoutBaseline(memorySamples(time.Second, c.mb...))
			require.Equal(t, c.want, reason != "", reason)
			if c.want {
				require.Contains(t, reason, `rotation.max_memory = "auto"`)
			}
		})
	}
}
