package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/spec"
)

func TestWantedWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		scale Scale
		load  float64
		want  int
	}{
		"seven calls at 0.7 want ten":      {Scale{spec.Scale{Max: 20}, 0.7}, 7, 10},
		"a little more wants one more":     {Scale{spec.Scale{Max: 20}, 0.7}, 7.01, 11},
		"no more than max":                 {Scale{spec.Scale{Max: 3}, 0.7}, 70, 3},
		"no fewer than min":                {Scale{spec.Scale{Min: 2, Max: 3}, 0.7}, 0, 2},
		"the last one stays":               {Scale{spec.Scale{Max: 3}, 0.7}, 0, 1},
		"unless it may go":                 {Scale{spec.Scale{Max: 3, IdleToZero: spec.Duration(time.Minute)}, 0.7}, 0, 0},
		"which the least demand prevents":  {Scale{spec.Scale{Max: 3, IdleToZero: spec.Duration(time.Minute)}, 7}, 0.01, 1},
		"several calls fit into a worker":  {Scale{spec.Scale{Max: 9}, 7}, 21, 3},
		"a demand that is not a number: 1": {Scale{spec.Scale{Max: 9}, 0}, 21, 1},
	} {
		require.Equal(t, c.want, c.scale.Wanted(c.load), name)
	}
}

func TestScaleGrowsAtOnceAndShrinksLate(t *testing.T) {
	s := Scale{spec.Scale{Max: 10, DownAfter: spec.Duration(5 * time.Minute),
		IdleToZero: spec.Duration(10 * time.Minute)}, 1}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var state Scaling
	size := 1
	for _, step := range []struct {
		at     time.Duration
		load   float64
		size   int
		delay  time.Duration
		reason string
	}{
		{0, 8, 8, 0, "demand of 8 calls at 1 per worker needs 8 workers"},
		{time.Second, 12, 10, 0, "needs 12 workers, more than scale.max = 10"},
		{time.Minute, 3, 10, 5 * time.Minute,
			"needs 3 workers; fewer workers once that has lasted for 5m (scale.down_after)"},
		{4 * time.Minute, 6, 10, 2 * time.Minute, "needs 6 workers; fewer"},
		{5 * time.Minute, 2, 10, time.Minute, "fewer workers once"},
		{6 * time.Minute, 2, 9, 0, "at most 6 workers wanted for 5m (scale.down_after)"},
		{6 * time.Minute, 2, 8, 0, ""},
		{7 * time.Minute, 2, 7, 0, ""},
		{7 * time.Minute, 2, 6, 0, ""},
		{7 * time.Minute, 2, 6, 5 * time.Minute, "a new window begins with the peak of the last one"},
		{8 * time.Minute, 7, 7, 0, "needs 7 workers"},
		{9 * time.Minute, 0, 7, 5 * time.Minute, "no demand; at least"},
		{14 * time.Minute, 0, 6, 0, ""},
		{14 * time.Minute, 0, 5, 0, ""},
		{14 * time.Minute, 0, 4, 0, ""},
		{14 * time.Minute, 0, 3, 0, ""},
		{14 * time.Minute, 0, 2, 0, ""},
		{14 * time.Minute, 0, 1, 0, ""},
		{14 * time.Minute, 0, 1, 5 * time.Minute, "(scale.idle_to_zero)"},
		{19 * time.Minute, 0, 0, 0, "at most 0 workers wanted for 10m (scale.idle_to_zero)"},
		{20 * time.Minute, 0, 0, 0, "no demand"},
		{21 * time.Minute, 1, 1, 0, "demand of 1 call at 1 per worker needs 1 worker"},
	} {
		var d ScaleDecision
		state, d = s.Decide(state, size, step.load, begin.Add(step.at))
		require.Equal(t, step.size, d.Size, "at %s: %+v", step.at, d)
		require.Equal(t, step.delay, d.Delay, "at %s: %+v", step.at, d)
		if step.delay == 0 || step.reason != "a new window begins with the peak of the last one" &&
			step.reason != "no demand; at least" {
			require.Contains(t, d.Reason, step.reason)
		}
		size = d.Size
	}
}

func TestWorkersAboveTheMaximumGoWithoutAWait(t *testing.T) {
	s := Scale{spec.Scale{Min: 1, Max: 4, DownAfter: spec.Duration(time.Hour)}, 1}
	_, d := s.Decide(Scaling{}, 6, 9, time.Now())
	require.Equal(t, ScaleDecision{Size: 5, Wanted: 4, Cause: ScaledToMax,
		Reason: "6 workers are more than scale.max = 4"}, d)
}
