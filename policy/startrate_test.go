package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
)

func TestStartsAreSpreadEvenlyAndNeverInBursts(t *testing.T) {
	rate := policy.StartRate{PerSecond: 4}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	next, d := rate.Ask(time.Time{}, now)
	require.Equal(t, policy.Restart, d.Action)
	_, d = rate.Ask(next, now)
	require.Equal(t, policy.Wait, d.Action)
	require.Equal(t, 250*time.Millisecond, d.Delay)
	next, d = rate.Ask(next, now.Add(time.Hour))
	require.Equal(t, policy.Restart, d.Action)
	_, d = rate.Ask(next, now.Add(time.Hour))
	require.Equal(t, policy.Wait, d.Action, "an idle hour is not made up for")
}

func TestWithoutARateEveryStartGoes(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 3 {
		_, d := policy.StartRate{}.Ask(now.Add(time.Hour), now)
		require.Equal(t, policy.Restart, d.Action)
	}
}
