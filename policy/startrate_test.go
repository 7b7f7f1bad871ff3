package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
)

func TestStartsAreSpreadEvenlyAndNeverInBursts(t *testing.T) {
	const rate = 4 // per second
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	next, wait := policy.StartAtRate(rate, time.Time{}, now)
	require.Zero(t, wait)
	_, wait = policy.StartAtRate(rate, next, now)
	require.Equal(t, 250*time.Millisecond, wait)
	next, wait = policy.StartAtRate(rate, next, now.Add(time.Hour))
	require.Zero(t, wait)
	_, wait = policy.StartAtRate(rate, next, now.Add(time.Hour))
	require.Positive(t, wait, "an idle hour is not made up for")
	for range 3 {
		_, wait = policy.StartAtRate(0, now.Add(time.Hour), now)
		require.Zero(t, wait, "without a rate every start goes")
	}
}
