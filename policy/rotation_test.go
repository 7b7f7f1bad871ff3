package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

func TestAWorkerIsRotatedAtItsLimits(t *testing.T) {
	require.Equal(t, "Rotating worker: served 10000 requests (limit 10000, rotation.max_requests).",
		policy.RotateForRequests(10_000, 10_000))
	const memory = "Rotating worker: its process tree uses 600 MB of memory (limit 512 MB, rotation.max_memory"
	require.Equal(t, memory+").", policy.RotateForMemory(600*mb, 512*mb, 0))
	require.Equal(t, memory+` = "auto", baseline 100 MB).`, policy.RotateForMemory(600*mb, 512*mb, 100*mb))
	require.Equal(t, "Rotating worker: up for 25h (limit 24h, rotation.max_uptime).",
		policy.RotateForUptime(25*time.Hour, 24*time.Hour))
	for _, reason := range []string{
		policy.RotateForRequests(9_999, 10_000), policy.RotateForMemory(512*mb-1, 512*mb, 0),
		policy.RotateForUptime(24*time.Hour-1, 24*time.Hour),
	} {
		require.Empty(t, reason)
	}
}

func TestZeroMeansNever(t *testing.T) {
	for _, reason := range []string{policy.RotateForRequests(math.MaxInt64, 0),
		policy.RotateForMemory(math.MaxInt64, 0, 0), policy.RotateForUptime(math.MaxInt64, 0)} {
		require.Empty(t, reason)
	}
	require.Zero(t, policy.RequestLimit(spec.Rotation{Jitter: 0.1}, 0.5))
}

func TestRequestLimitsOfSiblingsAreSpread(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	low, high, seen := int64(math.MaxInt64), int64(0), map[int64]bool{}
	for range 10_000 {
		limit := policy.RequestLimit(spec.Rotation{MaxRequests: 10_000, Jitter: 0.10}, draw.Float64())
		low, high = min(low, limit), max(high, limit)
		seen[limit] = true
	}
	require.GreaterOrEqual(t, low, int64(9_000))
	require.Less(t, low, int64(9_010))
	require.LessOrEqual(t, high, int64(11_000))
	require.Greater(t, high, int64(10_990))
	require.Greater(t, len(seen), 1_500)
	require.EqualValues(t, 1, policy.RequestLimit(spec.Rotation{MaxRequests: 1, Jitter: 0.9}, 0))
}
