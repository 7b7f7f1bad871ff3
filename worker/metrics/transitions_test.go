package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/lifecycle"
)

func TestTransitionsAreCountedByPoolFromAndTo(t *testing.T) {
	c := NewTransitions()
	now := time.Now()
	crash := lifecycle.Transition{From: lifecycle.Busy, To: lifecycle.Failed, DurationMS: 1500}
	c.Count("p", crash, now)
	c.Count("p", crash, now)
	c.Count("p", lifecycle.Transition{From: lifecycle.Failed, To: lifecycle.Starting, DurationMS: -5}, now)
	found := gather(t, c)
	values := map[string]float64{}
	for name, family := range found {
		for _, m := range family.GetMetric() {
			key := name
			for _, label := range m.GetLabel() {
				key += " " + label.GetValue()
			}
			values[key] = m.GetCounter().GetValue()
		}
	}
	require.Equal(t, map[string]float64{
		"tempool_pool_transitions_total busy p failed": 2, "tempool_pool_transition_seconds_total busy p failed": 3,
		"tempool_pool_transitions_total failed p starting": 1, "tempool_pool_transition_seconds_total failed p starting": 0,
	}, values)
	c.Count("q", crash, now.Add(transitionRetention))
	require.Nil(t, c.pools.Get("p"), "it rests")
	require.Len(t, gather(t, c)["tempool_pool_transitions_total"].GetMetric(), 1, "that of q")
}

func TestThePoolsOfTransitionsAreBounded(t *testing.T) {
	c := NewTransitions()
	now := time.Now()
	for i := range maxTransitionPools + 10 {
		c.Count(fmt.Sprintf("p%d", i), lifecycle.Transition{From: lifecycle.Ready, To: lifecycle.Busy},
			now.Add(time.Duration(i)))
	}
	require.Equal(t, maxTransitionPools, c.pools.Len())
	require.Nil(t, c.pools.Get("p0"))
	require.NotNil(t, c.pools.Get(fmt.Sprint("p", maxTransitionPools+9)))
}
