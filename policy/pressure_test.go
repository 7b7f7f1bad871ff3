package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
)

var plenty = policy.HostMemory{AvailableShare: 0.60}

func available(percent float64) policy.HostMemory {
	return policy.HostMemory{AvailableShare: percent / 100}
}

func TestPressureRisesAtOnce(t *testing.T) {
	for _, c := range []struct {
		look policy.HostMemory
		want policy.Level
	}{
		{plenty, "none"}, {available(15), "none"}, {available(14), "medium"}, {available(7), "high"},
		{available(3), "critical"},
		{policy.HostMemory{AvailableShare: 0.6, SomeAvg10: 9.9}, "none"},
		{policy.HostMemory{AvailableShare: 0.6, SomeAvg10: 10}, "medium"},
		{policy.HostMemory{AvailableShare: 0.6, SomeAvg10: 30}, "high"},
		{policy.HostMemory{AvailableShare: 0.6, SomeAvg10: 60}, "critical"},
		{policy.HostMemory{AvailableShare: 0.6, FullAvg10: 2}, "medium"},
		{policy.HostMemory{AvailableShare: 0.6, FullAvg10: 8}, "high"},
		{policy.HostMemory{AvailableShare: 0.6, FullAvg10: 20}, "critical"},
		{policy.HostMemory{AvailableShare: 0.14, FullAvg10: 8}, "high"},
	} {
		p, changed, reason := policy.Pressure{}.Next(c.look, noon)
		require.Equal(t, policy.Pressure{Level: c.want}, p, "%+v", c.look)
		require.Equal(t, c.want != policy.PressureNone, changed)
		require.Contains(t, reason, "Memory pressure")
	}
}

func TestPressureFallsOnlyAfterAMinuteClearlyBelow(t *testing.T) {
	p, _, _ := policy.Pressure{}.Next(available(3), noon)
	at := func(seconds int, look policy.HostMemory) (changed bool) {
		p, changed, _ = p.Next(look, noon.Add(time.Duration(seconds)*time.Second))
		return changed
	}
	require.False(t, at(10, available(4.5)), "within a quarter of the bound is not clear of it")
	require.True(t, p.CalmSince.IsZero())
	require.False(t, at(20, plenty))
	require.False(t, at(79, plenty))
	require.False(t, at(79, available(4.5)), "a relapse begins the minute again")
	require.False(t, at(80, plenty))
	require.False(t, at(100, available(12)), "the worst of the minute counts")
	require.True(t, at(140, plenty))
	require.Equal(t, policy.PressureMedium, p.Level)
	require.False(t, at(150, plenty))
	require.True(t, at(210, plenty))
	require.Equal(t, policy.Pressure{Level: policy.PressureNone}, p)
}
