package policy

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
)

const (
	// trendFit is the least R² at which a least-squares line counts as a trend. A single step, which is not a trend, stays
	// at 0.77 or below in windows of 6 samples or more; plain noise stays far below.
	trendFit = 0.80
	// dropShare of the limit is a fall that no noise explains: something was freed.
	dropShare = 0.10
	// failingScore and degradedScore are where the grades of these names begin.
	failingScore  = 20.0
	degradedScore = 60.0
)

// Prediction predicts failures from least-squares lines through the memory and the score of a worker's newest samples.
type Prediction struct {
	// Window is the number of samples of a line, at least 3.
	Window int
	// Horizon is how far ahead the limit may be crossed.
	Horizon time.Duration
	// MemoryLimitBytes is the memory at which the worker would be rotated or killed; 0 or less predicts from the score
	// alone.
	MemoryLimitBytes int64
	// LimitIsHard says that MemoryLimitBytes is limits.memory, at which the worker would be killed.
	LimitIsHard bool
}

// Observation is one sample of a worker, as prediction needs it.
type Observation struct {
	At          time.Time
	MemoryBytes int64 // of the whole process tree
	Score       float64
	ScoreKey    string // Assessment.Key
}

// Next is why to start the replacement of a worker now and switch gracefully, from the samples of its incarnation,
// oldest first: memory or score is on a well-fitting line that crosses its limit within Horizon. It is "" if not, and
// while there are fewer than Window samples. Samples before the last Window show the worker's normal range: a level
// from which it has recovered before predicts no failure.
func (p Prediction) Next(samples []Observation) string {
	if p.Window < 3 || len(samples) < p.Window {
		return ""
	}
	if because, _, ok := p.failure(samples); ok {
		return "Replacing worker before it fails: " + because + "."
	}
	return ""
}

// forecastHorizon is how far ahead a Forecast looks.
const forecastHorizon = 24 * time.Hour

// Forecast is what lies ahead of a worker, even of one that is not replaced for it yet.
type Forecast struct {
	// Watch is a sentence on why the worker should be watched closely; "" means no reason.
	Watch string
	// FailsIn is how long it takes to its limit at the present trend, at least a second; 0 if no failure is in sight.
	FailsIn time.Duration
}

// Forecast looks a day ahead. It extends the same lines that Next extends to the horizon.
func (p Prediction) Forecast(samples []Observation) Forecast {
	if p.Window < 3 || len(samples) < p.Window {
		return Forecast{}
	}
	p.Horizon = forecastHorizon
	if because, in, ok := p.failure(samples); ok {
		return Forecast{Watch: "Watch closely: " + because + ".", FailsIn: max(in, time.Second)}
	}
	if score := samples[len(samples)-1].Score; score <= degradedScore {
		return Forecast{Watch: fmt.Sprintf("Score only %.0f, but not falling.", score)}
	}
	return Forecast{}
}

// failure says which measure would cross its limit within the horizon, and when.
func (p Prediction) failure(samples []Observation) (because string, in time.Duration, ok bool) {
	if p.MemoryLimitBytes > 0 {
		limit := float64(p.MemoryLimitBytes)
		if t, ok := p.crossing(samples, limit, func(o Observation) float64 { return float64(o.MemoryBytes) }); ok {
			key := keyMaxMemory
			if p.LimitIsHard {
				key = keyLimitsMemory
			}
			in = t.until(limit)
			return fmt.Sprintf("memory grows by %.1f MB per minute and would reach %s (%s) in %s (fit %.2f)",
				t.perMinute()/bytesPerMB, megabytes(p.MemoryLimitBytes), key, shown(in), t.fit), in, true
		}
	}
	// The score is turned over, so that both measures rise towards their limit. A score that follows from memory by bands
	// that follow from the same baseline as the limit predicts nothing that memory does not, and too early: it falls
	// fastest just above the baseline.
	last := samples[len(samples)-1]
	ofMemory := p.MemoryLimitBytes > 0 && strings.HasPrefix(last.ScoreKey, autoMemoryBandsKey)
	if t, ok := p.crossing(samples, 100-failingScore, func(o Observation) float64 { return 100 - o.Score }); ok &&
		!ofMemory {
		in = t.until(100 - failingScore)
		return fmt.Sprintf("score falls by %.1f per minute and would be failing in %s (fit %.2f; %s)",
			t.perMinute(), shown(in), t.fit, cmp.Or(last.ScoreKey, "health bands")), in, true
	}
	return "", 0, false
}

// NeedsMoreSamples reports whether, at the rate of the last two samples, memory would reach its limit before a window
// of samples taken every pause is full. Then samples must be taken more often.
func (p Prediction) NeedsMoreSamples(samples []Observation, pause time.Duration) bool {
	n := len(samples)
	if n < 2 || p.MemoryLimitBytes <= 0 {
		return false
	}
	before, last := samples[n-2], samples[n-1]
	left := float64(p.MemoryLimitBytes - last.MemoryBytes)
	pace := float64(last.MemoryBytes-before.MemoryBytes) / last.At.Sub(before.At).Seconds()
	return pace > 0 && left/pace <= float64(p.Window)*pause.Seconds()
}

// crossing is the trend of one measure, if it reaches limit within the horizon.
func (p Prediction) crossing(samples []Observation, limit float64, measure func(Observation) float64) (trend, bool) {
	window := samples[len(samples)-p.Window:]
	t, ok := fitted(window, measure)
	if !ok || t.slope <= 0 || t.fit < trendFit || t.until(limit) > p.Horizon {
		return trend{}, false
	}
	// The window's first sample belongs to the past as well: the last fall may have ended there.
	past := samples[:len(samples)-p.Window+1]
	return t, t.now > cameBackFrom(past, dropShare*limit, measure)
}

// trend is a least-squares line.
type trend struct {
	slope float64 // per second
	now   float64 // the line's value at the last sample
	fit   float64 // R²
}

func (t trend) perMinute() float64 { return 60 * t.slope }

// until is how long the line takes from the last sample to limit; 0 if it is there.
func (t trend) until(limit float64) time.Duration {
	return duration(max(0, (limit-t.now)/t.slope) * float64(time.Second))
}

// fitted is the line through the window; ok is false if the samples have one time or one value. Formulas: ordinary
// least squares around the means, R² = Sxy² / (Sxx · Syy).
func fitted(window []Observation, measure func(Observation) float64) (t trend, ok bool) {
	last := window[len(window)-1].At
	n := float64(len(window))
	var meanX, meanY float64
	for _, o := range window {
		meanX += o.At.Sub(last).Seconds() / n
		meanY += measure(o) / n
	}
	var sxx, syy, sxy float64
	for _, o := range window {
		dx, dy := o.At.Sub(last).Seconds()-meanX, measure(o)-meanY
		sxx += dx * dx
		syy += dy * dy
		sxy += dx * dy
	}
	if !(sxx > 0) || !(syy > 0) {
		return trend{}, false
	}
	slope := sxy / sxx
	return trend{slope: slope, now: meanY - slope*meanX, fit: sxy * sxy / (sxx * syy)}, true
}

// cameBackFrom is the highest value from which the measure then fell by drop or more; −Inf if it never did.
func cameBackFrom(samples []Observation, drop float64, measure func(Observation) float64) float64 {
	peak, from := math.Inf(-1), math.Inf(-1)
	for _, o := range samples {
		value := measure(o)
		peak = max(peak, value)
		if peak-value >= drop {
			from = max(from, peak)
		}
	}
	return from
}
