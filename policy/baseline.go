package policy

import (
	"fmt"
	"slices"
	"time"
)

const (
	// baselineWindow is how long after its first call a program shows what memory it needs.
	baselineWindow = time.Minute
	// minBaselineSamples is the least number of samples of a baseline.
	minBaselineSamples = 3
	// minAutoMemory is the least that rotation.max_memory = "auto" allows. A smaller baseline counts as a third of it.
	minAutoMemory = 512 << 20
	// autoMemoryFactor times its baseline, a program is replaced.
	autoMemoryFactor = 3
	// GrowthWindow and growthFit are the samples, and their least R² around a rising line, of a program that grows without
	// end. Loading data is quicker or ends.
	GrowthWindow = 20
	growthFit    = 0.95
)

// autoBandFactors times its baseline, a program stops being excellent, good, degraded and critical.
var autoBandFactors = [4]float64{1.5, 2, autoMemoryFactor, 4}

// Baseline returns the memory that an incarnation needs, in bytes: the median of its samples in the first minute after
// its first call was served, or of the first three where that minute has fewer, as on a host that slept; 0 before.
// samples are in the order of time, and served is zero before the first call.
func Baseline(samples []Observation, served time.Time) int64 {
	if served.IsZero() || len(samples) == 0 || samples[len(samples)-1].At.Sub(served) < baselineWindow {
		return 0
	}
	var sizes []int64
	for _, o := range samples {
		if !o.At.Before(served) && (o.At.Sub(served) <= baselineWindow || len(sizes) < minBaselineSamples) {
			sizes = append(sizes, o.MemoryBytes)
		}
	}
	if len(sizes) < minBaselineSamples {
		return 0
	}
	slices.Sort(sizes)
	return sizes[len(sizes)/2]
}

// AutoMaxMemory is rotation.max_memory = "auto" of a program with a baseline: three times the baseline, at least 512
// MiB.
func AutoMaxMemory(baseline int64) int64 { return max(minAutoMemory, autoMemoryFactor*baseline) }

// AutoMemoryBands are health.memory_bands = "auto" of a program with a baseline: 1.5, 2, 3 and 4 times the baseline, at
// least 256 MiB.
func AutoMemoryBands(baseline int64) []float64 {
	unit := max(float64(baseline), minAutoMemory/autoMemoryFactor) / bytesPerMB
	return []float64{autoBandFactors[0] * unit, autoBandFactors[1] * unit, autoBandFactors[2] * unit,
		autoBandFactors[3] * unit}
}

// GrowthLimit is the memory at which an incarnation without a baseline may be replaced, if it has grown steadily.
func GrowthLimit(samples []Observation) int64 {
	if len(samples) == 0 {
		return 0
	}
	return AutoMaxMemory(slices.MinFunc(samples,
		func(a, b Observation) int { return int(a.MemoryBytes - b.MemoryBytes) }).MemoryBytes)
}

// RotateWithoutBaseline is why an incarnation whose baseline is not known is replaced: its memory has reached
// GrowthLimit on a straight line, so that it leaks rather than loads. It is "" if not.
func RotateWithoutBaseline(samples []Observation) string {
	limit := GrowthLimit(samples)
	if len(samples) < GrowthWindow || samples[len(samples)-1].MemoryBytes < limit {
		return ""
	}
	window := samples[len(samples)-GrowthWindow:]
	t, ok := fitted(window, func(o Observation) float64 { return float64(o.MemoryBytes) })
	if !ok || t.slope <= 0 || t.fit < growthFit {
		return ""
	}
	return fmt.Sprintf(
		"Rotating worker: its process tree uses %s of memory and grows by %.0f MB per minute without levelling off (limit "+
			"%s, %s).",
		megabytes(samples[len(samples)-1].MemoryBytes), t.perMinute()/bytesPerMB, megabytes(limit), keyAutoMaxMemory)
}
