package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
)

var rotation = policy.Rotation{MaxRequests: 10_000, Jitter: 0.10, MaxMemoryBytes: 512_000_000, MaxUptime: 24 * time.Hour}

func TestAWorkerIsRotatedAtTheFirstLimitItReaches(t *testing.T) {
	for _, c := range []struct {
		name   string
		life   policy.Life
		action policy.Action
		reason string
	}{
		{"young", policy.Life{Requests: 9_999, MemoryBytes: 511_999_999, Uptime: 24*time.Hour - 1}, policy.Rest, "No rotation limit is reached."},
		{"requests", policy.Life{Requests: 10_000}, policy.Restart, "Rotating worker: served 10000 requests (limit 10000, rotation.max_requests)."},
		{"memory", policy.Life{MemoryBytes: 600_000_000}, policy.Restart, "Rotating worker: its process tree uses 600 MB of memory (limit 512 MB, rotation.max_memory)."},
		{"uptime", policy.Life{Uptime: 25 * time.Hour}, policy.Restart, "Rotating worker: up for 25h (limit 24h, rotation.max_uptime)."},
		{"two at once", policy.Life{Requests: 10_001, Uptime: 24 * time.Hour}, policy.Restart,
			"Rotating worker: served 10001 requests (limit 10000, rotation.max_requests); up for 24h (limit 24h, rotation.max_uptime)."},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, policy.Decision{Action: c.action, Reason: c.reason}, rotation.Next(c.life, 0.5))
		})
	}
}

func TestZeroMeansNever(t *testing.T) {
	old := policy.Life{Requests: math.MaxInt64, MemoryBytes: math.MaxInt64, Uptime: math.MaxInt64}
	require.Equal(t, policy.Rest, policy.Rotation{Jitter: 0.1}.Next(old, 0.5).Action)
	require.Zero(t, policy.Rotation{Jitter: 0.1}.RequestLimit(0.5))
	require.Equal(t, policy.Restart, policy.Rotation{MaxRequests: math.MaxInt64, Jitter: 0.9}.Next(old, 0.999).Action)
}

func TestRequestLimitsOfSiblingsAreSpread(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	low, high, seen := int64(math.MaxInt64), int64(0), map[int64]bool{}
	for range 10_000 {
		limit := rotation.RequestLimit(draw.Float64())
		low, high = min(low, limit), max(high, limit)
		seen[limit] = true
	}
	require.GreaterOrEqual(t, low, int64(9_000))
	require.Less(t, low, int64(9_010))
	require.LessOrEqual(t, high, int64(11_000))
	require.Greater(t, high, int64(10_990))
	require.Greater(t, len(seen), 1_500)
	require.EqualValues(t, 1, policy.Rotation{MaxRequests: 1, Jitter: 0.9}.RequestLimit(0))
}
