package policy

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Grade is how well a worker is, in a word. The empty grade means that nothing was graded.
type Grade string

// The grades, from best to worst.
const (
	GradeExcellent Grade = "excellent"
	GradeGood      Grade = "good"
	GradeDegraded  Grade = "degraded"
	GradeCritical  Grade = "critical"
	GradeFailing   Grade = "failing"
)

// Bands are the values at which a measure stops being excellent, good, degraded and critical; from Critical on it is failing.
// They must rise. The zero Bands leave the measure ungraded.
type Bands struct {
	Excellent float64 `json:"excellent"`
	Good      float64 `json:"good"`
	Degraded  float64 `json:"degraded"`
	Critical  float64 `json:"critical"`
}

// The usual bands. A spec has those of memory unless it says otherwise; CPU and calls are ungraded unless it sets theirs, since a
// busy worker at 100 % CPU is doing its job.
var (
	MemoryBandsMB       = Bands{100, 250, 500, 750}
	CPUBandsPercent     = Bands{20, 50, 80, 95}
	CallsPerMinuteBands = Bands{10, 30, 60, 100}
)

var gradesFromBestToWorst = [...]Grade{GradeExcellent, GradeGood, GradeDegraded, GradeCritical, GradeFailing}

// Grading says by which bands workers are graded. Zero Bands leave their measure ungraded, and the zero value grades nothing.
type Grading struct {
	MemoryMB       Bands // 1 MB is 1000² bytes
	CPUPercent     Bands // 100 is one core
	CallsPerMinute Bands
}

// BandsOf makes Bands of four values that rise; of none, the zero Bands.
func BandsOf(values []float64) Bands {
	if len(values) != 4 {
		return Bands{}
	}
	return Bands{values[0], values[1], values[2], values[3]}
}

// Reading is one sample of what is graded.
type Reading struct {
	MemoryBytes    int64 // of the whole process tree
	CPUPercent     float64
	CallsPerMinute float64
}

// Assessment is the judgement of one sample.
type Assessment struct {
	// Grade and Score are those of the worst measure.
	Grade Grade `json:"grade"`
	// Score is 0 (worst) to 100: 20 points a band, linear within it. Failing goes down to 0 over as much again as the critical
	// band is wide.
	Score float64 `json:"score"`
	// Warnings has a sentence for each measure that is degraded or worse.
	Warnings []string `json:"warnings,omitempty"`
}

// Validate reports bands that do not rise from a number of 0 or more, in a sentence.
func (b Bands) Validate() error {
	if b != (Bands{}) && !(0 < b.Excellent && b.Excellent < b.Good && b.Good < b.Degraded && b.Degraded < b.Critical) {
		return fmt.Errorf("grade bands must rise from excellent to critical and begin above 0; %v, %v, %v, %v do not",
			b.Excellent, b.Good, b.Degraded, b.Critical)
	}
	return nil
}

// Assess judges one sample: the worst of memory, CPU and calls, as far as they have bands. The bands must be valid.
func (g Grading) Assess(r Reading) Assessment {
	worst := Assessment{Grade: GradeExcellent, Score: 100}
	for _, m := range []struct {
		bands Bands
		value float64
		what  string
	}{
		{g.MemoryMB, float64(r.MemoryBytes) / bytesPerMB, "memory is at %.0f MB"},
		{g.CPUPercent, r.CPUPercent, "CPU is at %.0f %%"},
		{g.CallsPerMinute, r.CallsPerMinute, "calls are at %.0f a minute"},
	} {
		if m.bands == (Bands{}) {
			continue
		}
		grade, score := m.bands.place(m.value)
		if score < worst.Score {
			worst.Grade, worst.Score = grade, score
		}
		if grade != GradeExcellent && grade != GradeGood {
			worst.Warnings = append(worst.Warnings, fmt.Sprintf("Its "+m.what+", which is %s; good is below %g.", m.value, grade, m.bands.Good))
		}
	}
	return worst
}

// place finds a value's band and how many points it has left.
func (b Bands) place(value float64) (Grade, float64) {
	const points = 20.0
	edges := [...]float64{0, b.Excellent, b.Good, b.Degraded, b.Critical, 2*b.Critical - b.Degraded}
	last := len(gradesFromBestToWorst) - 1
	i := 0
	for i < last && value >= edges[i+1] {
		i++
	}
	return gradesFromBestToWorst[i], 100 - points*(float64(i)+unit((value-edges[i])/(edges[i+1]-edges[i])))
}

// The number of samples in a row after which a worker that is not well is replaced.
const (
	criticalInARow = 3
	degradedInARow = 5
)

// Streak counts samples in a row that were as bad as a grade or worse. It belongs to one incarnation; its zero value begins one.
type Streak struct {
	Critical int `json:"critical,omitempty"`
	Degraded int `json:"degraded,omitempty"`
}

// GradeRespite is how long an incarnation lives before its grade may end it, when so many in a row before it went for theirs: a
// program that simply needs that much is not helped by new processes. The first goes at once, then 1 m, 3 m, 9 m, up to a day.
func GradeRespite(inARow int) time.Duration {
	if inARow <= 0 {
		return 0
	}
	return duration(min(float64(24*time.Hour), float64(time.Minute)*math.Pow(3, float64(inARow-1))))
}

// Next counts one more assessment in and decides: Restart at failing at once, at critical or worse three times in a row, at
// degraded or worse five times in a row; Watch while such a row is under way, else Rest.
func (s Streak) Next(a Assessment) (Streak, Decision) {
	switch a.Grade {
	case GradeFailing, GradeCritical:
		s.Critical++
		s.Degraded++
	case GradeDegraded:
		s.Critical = 0
		s.Degraded++
	default:
		return Streak{}, Decision{Action: Rest, Reason: "The worker is well."}
	}
	because := strings.Join(a.Warnings, " ")
	switch {
	case a.Grade == GradeFailing:
		return s, Decision{Action: Restart, Reason: "Replacing the worker because it is failing. " + because}
	case s.Critical >= criticalInARow:
		return s, Decision{Action: Restart, Reason: fmt.Sprintf(
			"Replacing the worker because it was critical in %d samples in a row. %s", s.Critical, because)}
	case s.Degraded >= degradedInARow:
		return s, Decision{Action: Restart, Reason: fmt.Sprintf(
			"Replacing the worker because it was degraded or worse in %d samples in a row. %s", s.Degraded, because)}
	}
	return s, Decision{Action: Watch, Reason: fmt.Sprintf("The worker is %s; it is replaced if that lasts. %s", a.Grade, because)}
}
