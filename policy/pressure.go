package policy

import (
	"cmp"
	"fmt"
	"time"
)

// Level is the memory pressure of a host.
type Level string

// The levels, from none to the worst.
const (
	PressureNone     Level = "none"
	PressureMedium   Level = "medium"   // collect garbage in workers, drop session caches
	PressureHigh     Level = "high"     // also lower limits and recycle the largest worker
	PressureCritical Level = "critical" // drain and stop up to half of the workers, largest first
)

// HostMemory is one sample of a host's memory.
type HostMemory struct {
	// AvailableShare is available over total memory, 0 to 1.
	AvailableShare float64
	// SomeAvg10 and FullAvg10 are the kernel's pressure stall figures for memory: the percentage of the last 10 seconds in
	// which some, or all, runnable tasks waited for memory. 0 where the kernel does not report it.
	SomeAvg10 float64
	FullAvg10 float64
}

// bound is where a level begins: any of the three suffices.
type bound struct {
	level     Level
	available float64 // below
	some      float64 // at or above
	full      float64 // at or above
}

// bounds, the worst first. The stall figures follow what user-space OOM killers act on: a host whose tasks all stall
// for a tenth of the time is as good as stuck.
var bounds = []bound{
	{PressureCritical, 0.04, 60, 20},
	{PressureHigh, 0.08, 30, 8},
	{PressureMedium, 0.15, 10, 2},
}

const (
	// pressureMargin is how far beyond a bound the figures must be before its level is left, as a part of the bound.
	pressureMargin = 0.25
	// pressureCalm is how long they must stay there.
	pressureCalm = time.Minute
)

// Pressure is the level of one host, and since when its figures have been lower. The zero value means no pressure.
type Pressure struct {
	Level Level `json:"level,omitempty"`
	// CalmLevel is the level the figures have called for, margin included, since CalmSince, while it is lower than Level.
	CalmLevel Level     `json:"calm_level,omitempty"`
	CalmSince time.Time `json:"calm_since,omitzero"`
}

// Next takes one sample. The level rises immediately. It falls only after the figures have cleared the bounds of all
// higher levels by a quarter for a minute, to the highest level in that minute. changed reports whether Level changed;
// the reason is always set.
func (p Pressure) Next(sample HostMemory, now time.Time) (next Pressure, changed bool, reason string) {
	p.Level = cmp.Or(p.Level, PressureNone)
	figures := fmt.Sprintf("%.0f %% of the host's memory available; tasks stalled for memory %.0f %% of the time, all "+
		"tasks %.0f %%",
		100*sample.AvailableShare, sample.SomeAvg10, sample.FullAvg10)
	if called := sample.level(0); severity(called) > severity(p.Level) {
		return Pressure{Level: called}, true,
			fmt.Sprintf("Memory pressure rose from %[2]s to %[1]s: %[3]s.", called, p.Level, figures)
	}
	calm := sample.level(pressureMargin)
	if severity(calm) >= severity(p.Level) {
		return Pressure{Level: p.Level}, false, fmt.Sprintf("Memory pressure %s: %s.", p.Level, figures)
	}
	next = Pressure{Level: p.Level, CalmLevel: p.CalmLevel, CalmSince: p.CalmSince}
	if p.CalmSince.IsZero() {
		next.CalmLevel, next.CalmSince = calm, now
	}
	if severity(calm) > severity(next.CalmLevel) {
		next.CalmLevel = calm
	}
	if now.Sub(next.CalmSince) < pressureCalm {
		return next, false, fmt.Sprintf("Memory pressure %s until it has been lower for %s: %s.", p.Level,
			shown(pressureCalm), figures)
	}
	return Pressure{Level: next.CalmLevel}, true, fmt.Sprintf(
		"Memory pressure down from %[2]s to %[1]s: %[3]s.", next.CalmLevel, p.Level, figures)
}

// level is the level of the figures, with every bound stricter by margin.
func (m HostMemory) level(margin float64) Level {
	for _, b := range bounds {
		if m.AvailableShare < b.available*(1+margin) || m.SomeAvg10 >= b.some*(1-margin) || m.FullAvg10 >= b.full*(1-margin) {
			return b.level
		}
	}
	return PressureNone
}

// AtLeast reports whether the level is other or worse.
func (l Level) AtLeast(other Level) bool { return severity(l) >= severity(other) }

func severity(l Level) int {
	for i, b := range bounds {
		if b.level == l {
			return len(bounds) - i
		}
	}
	return 0
}
