// Package fromspec makes policies out of a pool's spec. It keeps policy independent of spec.
package fromspec

import (
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// Recovery is the policy of the [recovery] section.
func Recovery(s spec.Spec) policy.Recovery {
	r := s.Recovery
	return policy.Recovery{
		MaxConsecutiveFailures: r.MaxConsecutiveFailures, BackoffInitial: r.BackoffInitial.D(), BackoffMax: r.BackoffMax.D(),
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

// Grading is the grading by the bands of the [health] section, for a program with a baseline of so many bytes. While that is 0, not known,
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
