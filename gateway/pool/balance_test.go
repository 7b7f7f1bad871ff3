package pool

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBalancerPrefersFewestInFlightThenScoreThenChoices(t *testing.T) {
	plain := candidate{score: 100, inFlight: 1, chosen: 5}
	for name, change := range map[string]func(*candidate){
		"fewer calls in flight":    func(c *candidate) { c.inFlight, c.score, c.chosen = 0, 0, 9 },
		"chosen less often":        func(c *candidate) { c.chosen = 4 },
		"a score in the same band": func(c *candidate) { c.chosen, c.score = 4, 81 },
	} {
		t.Run(name, func(t *testing.T) {
			other := plain
			change(&other)
			require.True(t, better(other, plain))
			require.False(t, better(plain, other))
		})
	}
	worse := plain
	worse.score, worse.chosen = 79, 1
	require.True(t, better(plain, worse), "a lower score band counts more than chosen less often")
	require.False(t, better(plain, plain))
}

func TestSessionWorkerIsPreferredUntilFarAheadUnderLoad(t *testing.T) {
	best := candidate{chosen: 5}
	require.True(t, prefersSession(candidate{inFlight: 3, chosen: 5 + maxSessionLead}, best, 2, 4))
	require.False(t, prefersSession(candidate{chosen: 6 + maxSessionLead}, best, 2, 4))
	require.True(t, prefersSession(candidate{chosen: 500}, best, 1, 4), "with few busy workers, the load need not spread")
}

func TestReturningWorkerCatchesUpWithFewCalls(t *testing.T) {
	p := &poolState{chosen: 1000}
	require.EqualValues(t, 990, p.chosenLocked(&upstream{chosen: 990}))
	require.EqualValues(t, 1000-maxCatchUp, p.chosenLocked(&upstream{chosen: 3}))
}
