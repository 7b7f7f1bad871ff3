// Package fromspec makes policies out of a pool's spec. It keeps policy independent of spec.
package fromspec

import (
	"time"

	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// Recovery is the policy of the [recovery] section.
func Recovery(s spec.Spec) policy.Recovery {
	r := s.Recovery
	return policy.Recovery{
		Restart: policy.RestartMode(r.Restart), MaxConsecutiveFailures: r.MaxConsecutiveFailures, BackoffInitial: r.BackoffInitial.D(), BackoffMax: r.BackoffMax.D(),
		BackoffMultiplier: r.BackoffMultiplier, HealthyReset: r.HealthyReset.D(),
	}
}

// Rotation is the policy of the [rotation] section.
func Rotation(s spec.Spec) policy.Rotation {
	r := s.Rotation
	return policy.Rotation{
		MaxRequests: int64(r.MaxRequests), Jitter: r.Jitter, MaxMemoryBytes: max(0, int64(r.MaxMemory)), MaxUptime: r.MaxUptime.D(),
	}
}

// Scale is the policy of the [scale] section.
func Scale(s spec.Spec) policy.Scale {
	return policy.Scale{
		Min: s.Scale.Min, Max: s.Scale.Max, PerWorker: perWorker(s), DownAfter: s.Scale.DownAfter.D(), IdleToZero: s.Scale.IdleToZero.D(),
	}
}

// leastHold and mostHold bound how long demand must have fallen before a gateway reports it, which is part of scale.down_after.
const (
	leastHold = 500 * time.Millisecond
	mostHold  = 15 * time.Second
)

// DemandMeter is the meter of one gateway's demand for a pool that follows it.
func DemandMeter(s spec.Spec) policy.DemandMeter {
	return policy.DemandMeter{
		MaxInflight: s.Pool.MaxInflight, PerWorker: perWorker(s), Max: s.Scale.Max, UpAfter: s.Scale.UpAfter.D(),
		Hold: min(max(s.Scale.DownAfter.D()/4, leastHold), mostHold),
	}
}

// perWorker is the number of calls that one worker is wanted for.
func perWorker(s spec.Spec) float64 { return float64(s.Pool.MaxInflight) * s.Scale.TargetInflight }

// Grading is the grading by the bands of the [health] section, for a program with a baseline of this many bytes. While that is 0, not known,
// bands that follow from it are empty.
func Grading(h spec.Health, baseline int64) policy.Grading {
	g := policy.Grading{
		MemoryMB: policy.BandsOf(h.MemoryBands), CPUPercent: policy.BandsOf(h.CPUBands), CallsPerMinute: policy.BandsOf(h.CallsBands),
	}
	if h.MemoryBands == nil && baseline > 0 {
		g.MemoryMB, g.MemoryBaseline = policy.AutoMemoryBands(baseline), baseline
	}
	return g
}
