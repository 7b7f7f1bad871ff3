package policy_test

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
)

const mb = 1_000_000

// Bands that suit small programs.
var (
	memoryBandsMB       = []float64{100, 250, 500, 750}
	cpuBandsPercent     = []float64{20, 50, 80, 95}
	callsPerMinuteBands = []float64{10, 30, 60, 100}
)

func TestMemoryIsGradedInBandsOfTwentyPoints(t *testing.T) {
	for _, c := range []struct {
		mb    float64
		grade policy.Grade
		score float64
	}{
		{0, "excellent", 100}, {50, "excellent", 90}, {99, "excellent", 80.2},
		{100, "good", 80}, {175, "good", 70},
		{250, "degraded", 60}, {375, "degraded", 50},
		{500, "critical", 40}, {625, "critical", 30},
		{750, "failing", 20}, {875, "failing", 10}, {1000, "failing", 0}, {50_000, "failing", 0},
	} {
		a := policy.Grading{MemoryMB: memoryBandsMB}.Assess(policy.Reading{MemoryBytes: int64(c.mb * mb)})
		require.Equal(t, c.grade, a.Grade, c.mb)
		require.InDelta(t, c.score, a.Score, 1e-9, c.mb)
		require.Equal(t, c.score <= 60, len(a.Warnings) == 1, c.mb)
	}
}

func TestABusyWorkerIsWellUnlessBandsForCPUAndCallsAreSet(t *testing.T) {
	busy := policy.Reading{MemoryBytes: 50 * mb, CPUPercent: 110, CallsPerMinute: 70}
	require.Equal(t, policy.Assessment{Grade: policy.GradeExcellent, Score: 90, Key: "health.memory_bands"},
		policy.Grading{MemoryMB: memoryBandsMB}.Assess(busy))

	all := policy.Grading{MemoryMB: memoryBandsMB, CPUPercent: cpuBandsPercent, CallsPerMinute: callsPerMinuteBands}
	require.Equal(t, policy.Assessment{Grade: policy.GradeFailing, Score: 0, Key: "health.cpu_bands", Warnings: []string{
		"Its CPU is 110 %: failing; good is below 50 (health.cpu_bands).",
		"Its calls are 70 per minute: critical; good is below 30 (health.calls_bands).",
	}}, all.Assess(busy))
}

func TestAnUnwellWorkerIsReplacedWhenItStaysUnwell(t *testing.T) {
	letters := map[rune]policy.Grade{'e': "excellent", 'g': "good", 'd': "degraded", 'c': "critical", 'f': "failing"}
	for samples, restartAt := range map[string]int{
		"f": 1, "gf": 2, "ccc": 3, "ccdccc": 5, "ccdccg": 5, "ccgccgcc": 0, "ddddd": 5, "ddddgdddd": 0, "dcdcd": 5,
		"dddcc": 5, "ddccc": 5, "dccc": 4, "egegeg": 0,
	} {
		var s policy.Streak
		at := 0
		for i, letter := range samples {
			var reason string
			s, reason = s.Next(policy.Assessment{Grade: letters[letter], Warnings: []string{"Its memory is high."}})
			if reason != "" {
				require.Contains(t, reason, "Its memory is high.")
				at = cmp.Or(at, i+1)
			}
			require.Equal(t, letter == 'e' || letter == 'g', s == policy.Streak{})
		}
		require.Equal(t, restartAt, at, samples)
	}
}
