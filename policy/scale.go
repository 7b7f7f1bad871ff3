package policy

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/spec"
)

// Scale decides how many workers a pool has, by the demand of all its gateways.
type Scale struct {
	spec.Scale
	PerWorker float64 // calls that one worker is wanted for
}

// ScaleOf is the policy of the [scale] section.
func ScaleOf(s spec.Spec) Scale { return Scale{s.Scale, perWorker(s)} }

func perWorker(s spec.Spec) float64 { return float64(s.Pool.MaxInflight) * s.Scale.TargetInflight }

// Scaling is what Scale remembers between two decisions. The zero value is a pool whose workers are all wanted.
type Scaling struct {
	// LowerSince is since when fewer workers are wanted than there are, and Peak the most wanted in that time.
	LowerSince time.Time `json:"lower_since,omitzero"`
	Peak       int       `json:"peak,omitempty"`
	// IdleSince is since when there is no demand.
	IdleSince time.Time `json:"idle_since,omitzero"`
}

// ScaleDecision is the size that a pool should have now.
type ScaleDecision struct {
	Size   int // now: more at once, or one less than now
	Wanted int // by the demand, within the bounds
	// Delay is when to decide again if nothing changes; 0 is never.
	Delay  time.Duration
	Cause  ScaleCause
	Reason string
}

// ScaleCause is why a pool has its size, as one word.
type ScaleCause string

// The causes.
const (
	ScaledByDemand ScaleCause = "demand"
	ScaledToMin    ScaleCause = "min"          // less is needed than the minimum
	ScaledToMax    ScaleCause = "max"          // more is needed than the maximum
	ScaleDownAfter ScaleCause = "down_after"   // fewer workers are wanted, not for long enough yet or one at a time
	ScaleIdle      ScaleCause = "idle_to_zero" // none is wanted, but the last worker stays for some time
)

// Wanted is how many workers the pool should have for a load, in calls.
func (s Scale) Wanted(load float64) int {
	lowest := max(1, s.Min)
	if load <= 0 {
		lowest = s.Lowest()
	}
	return min(max(workersFor(load, s.PerWorker), lowest), s.Max)
}

// Decide compares the size of a pool with its load. The pool grows at once: gateways report only demand that lasts. It
// shrinks by one at a time, to the most that was wanted in the last DownAfter.
func (s Scale) Decide(state Scaling, size int, load float64, now time.Time) (Scaling, ScaleDecision) {
	if load > 0 {
		state.IdleSince = time.Time{}
	} else if state.IdleSince.IsZero() {
		state.IdleSince = now
	}
	wanted := s.Wanted(load)
	d := ScaleDecision{Size: size, Wanted: wanted}
	if wanted >= size {
		state.LowerSince, state.Peak = time.Time{}, 0
		d.Size, d.Cause, d.Reason = wanted, s.cause(load), s.demand(load)
		return state, d
	}
	if size > s.Max {
		d.Size, d.Cause, d.Reason = size-1, ScaledToMax, fmt.Sprintf("%d workers are more than scale.max = %d", size, s.Max)
		return state, d
	}
	if state.LowerSince.IsZero() || state.Peak >= size {
		state.LowerSince, state.Peak = now, wanted
	}
	state.Peak = max(state.Peak, wanted)
	since, wait, cause := state.LowerSince, s.DownAfter.D(), ScaleDownAfter
	if size == 1 {
		since, wait, cause = state.IdleSince, s.IdleToZero.D(), ScaleIdle
	}
	d.Cause = cause
	if left := since.Add(wait).Sub(now); left > 0 {
		d.Delay = left
		d.Reason = fmt.Sprintf("%s; fewer workers once that has lasted for %s (scale.%s)", s.demand(load), shown(wait), cause)
		return state, d
	}
	if state.Peak < size {
		d.Size = size - 1
	}
	d.Reason = fmt.Sprintf("at most %s wanted for %s (scale.%s)", format.Plural(state.Peak, "worker"), shown(wait),
		cause)
	return state, d
}

// demand says what a load wants.
func (s Scale) demand(load float64) string {
	wanted, needs := s.Wanted(load), workersFor(load, s.PerWorker)
	text := fmt.Sprintf("demand of %s at %s per worker needs %s", calls(load), number(s.PerWorker),
		format.Plural(needs, "worker"))
	if load <= 0 {
		text = "no demand"
	}
	switch {
	case needs > s.Max:
		text += fmt.Sprintf(", more than scale.max = %d", s.Max)
	case needs < wanted:
		text += fmt.Sprintf("; at least %d stay", wanted)
	}
	return text
}

// cause is why the pool has the workers that a load wants.
func (s Scale) cause(load float64) ScaleCause {
	switch needs := workersFor(load, s.PerWorker); {
	case needs > s.Max:
		return ScaledToMax
	case needs < s.Wanted(load):
		return ScaledToMin
	}
	return ScaledByDemand
}

func calls(load float64) string {
	if number(load) == "1" {
		return "1 call"
	}
	return number(load) + " calls"
}

// number is a number with at most two decimals.
func number(x float64) string { return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64) }
