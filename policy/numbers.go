package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/tempool/tempool/spec"
)

// unit clamps x to [0,1]; NaN is 0.
func unit(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return max(0, min(1, x))
}

// duration clamps ns nanoseconds to the range of Duration; NaN is 0.
func duration(ns float64) time.Duration {
	switch {
	case math.IsNaN(ns):
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	case ns <= math.MinInt64:
		return math.MinInt64
	}
	return time.Duration(ns)
}

// shown rounds and formats d for messages.
func shown(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return spec.Duration(d.Round(time.Second)).String() // "24h", not "24h0m0s": as in the pool's file
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// megabytes formats bytes in units of 1000².
func megabytes(bytes int64) string { return fmt.Sprintf("%.0f MB", float64(bytes)/bytesPerMB) }

const bytesPerMB = 1e6
