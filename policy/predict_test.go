package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
)

// observed makes samples 30 s apart, of memory in MB and, where score is not nil, of scores.
func observed(memory []int64, score []float64) []policy.Observation {
	var samples []policy.Observation
	for i, m := range memory {
		o := policy.Observation{At: noon.Add(time.Duration(i) * 30 * time.Second), MemoryBytes: m * mb, Score: 90}
		if score != nil {
			o.Score = score[i]
		}
		samples = append(samples, o)
	}
	return samples
}

func TestPredictionReplacesBeforeTheLimitIsCrossed(t *testing.T) {
	p := policy.Prediction{Window: 5, Horizon: 6 * time.Minute, MemoryLimitBytes: 500 * mb}
	flat := []int64{100, 100, 100, 100, 100}
	for _, c := range []struct {
		name   string
		memory []int64
		score  []float64
		want   string
	}{
		{"a leak that reaches the limit within the horizon", []int64{200, 220, 240, 260, 280}, nil,
			"Replacing worker before it fails: memory grows by 40.0 MB per minute and would reach 500 MB " +
				"(rotation.max_memory) in 5m30s (fit 1.00)."},
		{"a leak that is not there yet", []int64{100, 120, 140, 160, 180}, nil, ""},
		{"a leak that is beyond the limit", []int64{420, 450, 480, 510, 540}, nil,
			"Replacing worker before it fails: memory grows by 60.0 MB per minute and would reach 500 MB " +
				"(rotation.max_memory) in 0s (fit 1.00)."},
		{"memory that falls", []int64{490, 480, 470, 460, 450}, nil, ""},
		{"a step", []int64{100, 100, 400, 400, 400}, nil, ""},
		{"too few samples", []int64{300, 400, 450, 490}, nil, ""},
		{"a score that falls", flat, []float64{70, 65, 60, 55, 50},
			"Replacing worker before it fails: score falls by 10.0 per minute and would be failing in 3m (fit 1.00; health " +
				"bands)."},
		{"a score that is bad but stable", flat, []float64{50, 50, 50, 50, 50}, ""},
		{"a score that recovers", flat, []float64{30, 35, 40, 45, 50}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, p.Next(observed(c.memory, c.score)))
		})
	}
}

func TestALevelThatTheWorkerRecoveredFromPredictsNoFailure(t *testing.T) {
	p := policy.Prediction{Window: 5, Horizon: 5 * time.Minute, MemoryLimitBytes: 500 * mb}
	tooth := []int64{200, 250, 300, 350, 400}
	require.NotEmpty(t, p.Next(observed(tooth, nil)))
	again := append(append([]int64{}, tooth...), append([]int64{410}, tooth...)...)
	require.Empty(t, p.Next(observed(again, nil)))
	beyond := append(append([]int64{}, tooth...), 220, 270, 320, 370, 420)
	require.NotEmpty(t, p.Next(observed(beyond, nil)), "it never was as high as this")
}

func TestAScoreThatFollowsFromMemoryPredictsNothingThatMemoryDoesNot(t *testing.T) {
	p := policy.Prediction{Window: 5, Horizon: 5 * time.Minute, MemoryLimitBytes: 954 * mb}
	samples := observed([]int64{300, 310, 321, 332, 340}, []float64{98, 90, 82, 74, 66})
	require.NotEmpty(t, p.Next(samples), "of calls, or of bands that somebody has set")
	for i := range samples {
		samples[i].ScoreKey = `health.memory_bands = "auto", baseline 318 MB`
	}
	require.Empty(t, p.Next(samples))
	p.MemoryLimitBytes = 0
	require.NotEmpty(t, p.Next(samples))
}

func TestSamplesOfOneInstantAndMemoryWithoutALimitShowNoTrend(t *testing.T) {
	samples := observed([]int64{200, 250, 300, 350, 400}, nil)
	p := policy.Prediction{Window: 5, Horizon: 5 * time.Minute}
	require.Empty(t, p.Next(samples), "only the score counts")
	for i := range samples {
		samples[i].At = noon
	}
	p.MemoryLimitBytes = 500 * mb
	require.Empty(t, p.Next(samples))
	require.Empty(t, p.Next(nil))
	require.Empty(t, policy.Prediction{}.Next(samples))
}

func TestTheForecastShowsAFailureLongBeforeItIsActedOn(t *testing.T) {
	p := policy.Prediction{Window: 6, Horizon: 5 * time.Minute, MemoryLimitBytes: 600 * mb}
	growing := observed([]int64{100, 102, 104, 106, 108, 110}, nil) // 4 MB a minute
	require.Empty(t, p.Next(growing), "that is further ahead than the horizon")
	forecast := p.Forecast(growing)
	require.Equal(t, "Watch closely: memory grows by 4.0 MB per minute and would reach 600 MB (rotation.max_memory) in "+
		"2h2m30s (fit 1.00).", forecast.Watch)
	require.InDelta(t, (490 * time.Minute / 4).Seconds(), forecast.FailsIn.Seconds(), 1)

	require.Equal(t, policy.Forecast{}, p.Forecast(growing[:5]), "too few samples")
	require.Equal(t, policy.Forecast{}, p.Forecast(observed([]int64{100, 100, 100, 100, 100, 100}, nil)))
	p.MemoryLimitBytes = 100_000 * mb
	require.Equal(t, policy.Forecast{}, p.Forecast(growing), "more than a day ahead is out of sight")
	low := p.Forecast(observed([]int64{1, 1, 1, 1, 1, 1}, []float64{50, 51, 50, 51, 50, 51}))
	require.Equal(t, policy.Forecast{Watch: "Score only 51, but not falling."}, low)
}
