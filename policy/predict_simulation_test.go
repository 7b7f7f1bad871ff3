package policy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
)

// The simulated worker: sampled at the default probe interval, limited to 512 MB, seen for at most 8 hours.
const (
	simStep  = 30 * time.Second
	simLimit = 512 * mb
	simSteps = 8 * 120
	simKept  = 100 // samples that are kept for an incarnation
)

var simPrediction = policy.Prediction{Window: 10, Horizon: 5 * time.Minute, MemoryLimitBytes: simLimit}

// story is one worker's life: its memory as a share of the limit, or, where score is set, its score, by sample.
type story struct {
	value func(step int) float64
	score bool
}

// kinds of lives. Those that fail end at the limit; the healthy ones never reach it.
var kinds = []struct {
	name    string
	fails   bool
	maximum float64 // the tolerated share of missed or false
	draw    func(*rand.Rand) story
}{
	{"leak", true, 0.20, func(r *rand.Rand) story {
		from, steps, noise := between(r, 0.2, 0.5), spread(r, 10, 900), spread(r, 0.0005, 0.02)
		return story{value: func(i int) float64 { return from + (1.02-from)*float64(i)/steps + noise*r.NormFloat64() }}
	}},
	{"accelerating leak", true, 0.20, func(r *rand.Rand) story {
		from, steps, noise := between(r, 0.2, 0.5), spread(r, 20, 900), spread(r, 0.0005, 0.02)
		return story{value: func(i int) float64 {
			return from + (1.02-from)*math.Pow(float64(i)/steps, 2) + noise*r.NormFloat64()
		}}
	}},
	{"slow decay of the score", true, 0.20, func(r *rand.Rand) story {
		from, steps, noise := between(r, 70, 95), spread(r, 10, 900), spread(r, 0.05, 2)
		return story{score: true, value: func(i int) float64 {
			return from - (from-18)*float64(i)/steps + noise*r.NormFloat64()
		}}
	}},
	{"noise", false, 0.05, func(r *rand.Rand) story {
		level, noise := between(r, 0.2, 0.85), spread(r, 0.002, 0.04)
		return story{value: func(int) float64 { return level + noise*max(-3, min(3, r.NormFloat64())) }}
	}},
	{"noise in the score", false, 0.05, func(r *rand.Rand) story {
		level, noise := between(r, 40, 95), spread(r, 0.5, 5)
		return story{score: true, value: func(int) float64 { return max(21, min(100, level+noise*r.NormFloat64())) }}
	}},
	{"wandering", false, 0.05, func(r *rand.Rand) story {
		level, swing, period, noise := between(r, 0.2, 0.6), between(r, 0.02, 0.15), spread(r, 60, 480), spread(r, 0.002,
			0.02)
		return story{value: func(i int) float64 {
			return level + swing*math.Sin(2*math.Pi*float64(i)/period) + noise*r.NormFloat64()
		}}
	}},
	{"step", false, 0.05, func(r *rand.Rand) story {
		low, high, at, noise := between(r, 0.2, 0.5), between(r, 0.5, 0.85), r.IntN(400), spread(r, 0.001, 0.01)
		return story{value: func(i int) float64 {
			if i < at {
				return low + noise*r.NormFloat64()
			}
			return high + noise*r.NormFloat64()
		}}
	}},
	{"saw-tooth", false, 0.25, func(r *rand.Rand) story {
		low, high, period, noise := between(r, 0.2, 0.4), between(r, 0.45, 0.8), int(spread(r, 4, 120)), spread(r, 0.001,
			0.01)
		return story{value: func(i int) float64 {
			return low + (high-low)*float64(i%period)/float64(period) + noise*r.NormFloat64()
		}}
	}},
	{"warming up", false, 0.25, func(r *rand.Rand) story {
		low, high, lasts, noise := between(r, 0.1, 0.2), between(r, 0.3, 0.7), spread(r, 2, 40), spread(r, 0.001, 0.01)
		return story{value: func(i int) float64 {
			return high - (high-low)*math.Exp(-float64(i)/lasts) + noise*r.NormFloat64()
		}}
	}},
}

// TestPredictionMeetsItsGoalOnSimulatedLives prints the rates it finds; run it with -v to see them.
func TestPredictionMeetsItsGoalOnSimulatedLives(t *testing.T) {
	const lives = 200
	hits, failed, alarms, noisy := 0, 0, 0, 0
	for k, kind := range kinds {
		draw := rand.New(rand.NewPCG(20260301, uint64(k)))
		replaced := 0
		var leads []time.Duration
		for range lives {
			if at, end := live(t, kind.draw(draw), kind.fails); at >= 0 {
				replaced++
				leads = append(leads, time.Duration(end-at)*simStep)
			}
		}
		slices.Sort(leads)
		rate := float64(replaced) / lives
		if kind.fails {
			hits, failed = hits+replaced, failed+lives
			require.GreaterOrEqual(t, rate, 1-kind.maximum, kind.name)
			half, most := leads[len(leads)/2], leads[len(leads)*9/10]
			fmt.Printf("%-24s %5.1f %% replaced before failing, half of them less than %s and 90 %% less than %s before\n",
				kind.name, 100*rate, half, most)
			require.LessOrEqual(t, half, 2*simPrediction.Horizon, "%s: replaced long before it was going to fail", kind.name)
		} else {
			if kind.maximum <= 0.05 {
				alarms, noisy = alarms+replaced, noisy+lives
			}
			fmt.Printf("%-24s %5.1f %% false alarms\n", kind.name, 100*rate)
			require.LessOrEqual(t, rate, kind.maximum, kind.name)
		}
	}
	require.GreaterOrEqual(t, float64(hits)/float64(failed), 0.80, "of all that were going to fail")
	require.LessOrEqual(t, float64(alarms)/float64(noisy), 0.05, "of all that were healthy but noisy")
}

// live lets one worker live to its end, and reports at which sample prediction first replaced it, −1 if never, and the
// sample at which the life ended.
func live(t *testing.T, s story, fails bool) (replaced, end int) {
	replaced = -1
	var seen []policy.Observation
	for i := range simSteps {
		o := policy.Observation{At: noon.Add(time.Duration(i) * simStep), MemoryBytes: simLimit / 4, Score: 90}
		value, failed := s.value(i), false
		if s.score {
			o.Score, failed = value, value <= 20
		} else {
			o.MemoryBytes, failed = int64(value*simLimit), value >= 1
		}
		if failed {
			require.True(t, fails, "a healthy life must not reach the limit")
			return replaced, i
		}
		seen = append(seen, o)
		seen = slices.Delete(seen, 0, max(0, len(seen)-simKept))
		if replaced < 0 && simPrediction.Next(seen) != "" {
			replaced = i
		}
	}
	require.False(t, fails, "a failing life must reach its limit")
	return replaced, simSteps
}

func between(r *rand.Rand, low, high float64) float64 { return low + (high-low)*r.Float64() }

// spread draws evenly over orders of magnitude.
func spread(r *rand.Rand, low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
