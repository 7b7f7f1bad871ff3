package policy

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tempool/tempool/spec"
)

// Grade is the health of a worker in one word; empty if nothing was graded.
type Grade string

// The grades, from best to worst.
const (
	GradeExcellent Grade = "excellent"
	GradeGood      Grade = "good"
	GradeDegraded  Grade = "degraded"
	GradeCritical  Grade = "critical"
	GradeFailing   Grade = "failing"
)

// The keys of pool.toml that govern memory and grades. Reasons name them.
const (
	keyMemoryBands   = "health.memory_bands"
	keyCPUBands      = "health.cpu_bands"
	keyCallsBands    = "health.calls_bands"
	keyMaxMemory     = "rotation.max_memory"
	keyAutoMaxMemory = keyMaxMemory + ` = "auto"`
	keyLimitsMemory  = "limits.memory"

	autoMemoryBandsKey = keyMemoryBands + ` = "auto", baseline `
)

var gradesFromBestToWorst = [...]Grade{GradeExcellent, GradeGood, GradeDegraded, GradeCritical, GradeFailing}

// Grading is the bands by which workers are graded, as spec.Bands; at the last value and above it a measure is failing.
// A measure without four values is not graded, and the zero value grades nothing.
type Grading struct {
	MemoryMB       []float64 // 1 MB is 1000² bytes
	MemoryBaseline int64     // that MemoryMB was derived from, in bytes; 0 if it was not
	CPUPercent     []float64 // 100 is one core
	CallsPerMinute []float64
}

// GradingOf is the grading by the bands of the [health] section, for a program with a baseline of this many bytes.
// While that is 0, not known, bands that follow from it are empty.
func GradingOf(h spec.Health, baseline int64) Grading {
	g := Grading{MemoryMB: h.MemoryBands, CPUPercent: h.CPUBands, CallsPerMinute: h.CallsBands}
	if h.MemoryBands == nil && baseline > 0 {
		g.MemoryMB, g.MemoryBaseline = AutoMemoryBands(baseline), baseline
	}
	return g
}

// Reading is one sample of what is graded.
type Reading struct {
	MemoryBytes    int64 // of the whole process tree
	CPUPercent     float64
	CallsPerMinute float64
}

// Assessment is the grade of one sample.
type Assessment struct {
	// Grade and Score are those of the worst measure.
	Grade Grade `json:"grade"`
	// Score is 0 (worst) to 100: 20 points per band, linear within it. The failing band is as wide as the critical one.
	Score float64 `json:"score"`
	// Key is that of the bands of the worst measure; empty for the best score.
	Key string `json:"key,omitempty"`
	// Warnings are sentences, one for each measure that is degraded or worse. They name the key of the bands.
	Warnings []string `json:"warnings,omitempty"`
}

// Assess grades one sample by the worst of memory, CPU and calls, as far as they have bands. The bands must be valid.
func (g Grading) Assess(r Reading) Assessment {
	worst := Assessment{Grade: GradeExcellent, Score: 100}
	memoryKey := keyMemoryBands
	if g.MemoryBaseline > 0 {
		memoryKey = autoMemoryBandsKey + megabytes(g.MemoryBaseline)
	}
	for _, m := range []struct {
		bands []float64
		value float64
		what  string
		key   string
	}{
		{g.MemoryMB, float64(r.MemoryBytes) / bytesPerMB, "memory is %.0f MB", memoryKey},
		{g.CPUPercent, r.CPUPercent, "CPU is %.0f %%", keyCPUBands},
		{g.CallsPerMinute, r.CallsPerMinute, "calls are %.0f per minute", keyCallsBands},
	} {
		if len(m.bands) != 4 {
			continue
		}
		grade, score := place(m.value, m.bands)
		if score < worst.Score {
			worst.Grade, worst.Score, worst.Key = grade, score, m.key
		}
		if grade != GradeExcellent && grade != GradeGood {
			worst.Warnings = append(worst.Warnings,
				fmt.Sprintf("Its "+m.what+": %s; good is below %.0f (%s).", m.value, grade, m.bands[1], m.key))
		}
	}
	return worst
}

// place returns the grade and the score of a value by four bands.
func place(value float64, b []float64) (Grade, float64) {
	const points = 20.0
	edges := [...]float64{0, b[0], b[1], b[2], b[3], 2*b[3] - b[2]}
	last := len(gradesFromBestToWorst) - 1
	i := 0
	for i < last && value >= edges[i+1] {
		i++
	}
	return gradesFromBestToWorst[i], 100 - points*(float64(i)+unit((value-edges[i])/(edges[i+1]-edges[i])))
}

// The number of consecutive samples after which a worker is replaced.
const (
	criticalInARow = 3
	degradedInARow = 5
)

// Streak counts consecutive samples with a grade or a worse one. Start each incarnation with the zero Streak.
type Streak struct {
	Critical int `json:"critical,omitempty"`
	Degraded int `json:"degraded,omitempty"`
}

// GradeGracePeriod is how long an incarnation lives before its grade may end it, after this many consecutive
// incarnations that ended for their grade: new processes do not help a program that needs so much. It is 0, then 1 m, 3
// m, 9 m, up to a day.
func GradeGracePeriod(inARow int) time.Duration {
	if inARow <= 0 {
		return 0
	}
	return duration(min(float64(24*time.Hour), float64(time.Minute)*math.Pow(3, float64(inARow-1))))
}

// Next counts one more assessment. reason is why the incarnation is replaced: at failing, at the third consecutive
// critical assessment, or at the fifth consecutive degraded one; else it is "".
func (s Streak) Next(a Assessment) (next Streak, reason string) {
	switch a.Grade {
	case GradeFailing, GradeCritical:
		s.Critical++
		s.Degraded++
	case GradeDegraded:
		s.Critical = 0
		s.Degraded++
	default:
		return Streak{}, ""
	}
	because := strings.Join(a.Warnings, " ")
	switch {
	case a.Grade == GradeFailing:
		reason = "Replacing worker: grade failing. " + because
	case s.Critical >= criticalInARow:
		reason = fmt.Sprintf("Replacing worker: grade critical in %d consecutive samples. %s", s.Critical, because)
	case s.Degraded >= degradedInARow:
		reason = fmt.Sprintf("Replacing worker: grade degraded or worse in %d consecutive samples. %s", s.Degraded, because)
	}
	return s, reason
}
