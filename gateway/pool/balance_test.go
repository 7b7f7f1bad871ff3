package pool

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBalancerPrefersFewestInFlightThenScoreThenTurns(t *testing.T) {
	plain := candidate{score: 100, inFlight: 1, turn: 5}
	for name, change := range map[string]func(*candidate){
		"fewer calls in flight":    func(c *candidate) { c.inFlight, c.score, c.turn = 0, 0, 9 },
		"fewer turns":              func(c *candidate) { c.turn = 4 },
		"a score in the same band": func(c *candidate) { c.turn, c.score = 4, 81 },
	} {
		t.Run(name, func(t *testing.T) {
			other := plain
			change(&other)
			require.True(t, better(other, plain))
			require.False(t, better(plain, other))
		})
	}
	worse := plain
	worse.score, worse.turn = 79, 1
	require.True(t, better(plain, worse), "a lower score band counts more than fewer turns")
	require.False(t, better(plain, plain))
}

func TestSessionWorkerIsPreferredUntilFarAheadUnderLoad(t *testing.T) {
	best := candidate{turn: 5}
	require.True(t, prefersSession(candidate{inFlight: 3, turn: 5 + maxSessionLead}, best, 2, 4))
	require.False(t, prefersSession(candidate{turn: 6 + maxSessionLead}, best, 2, 4))
	require.True(t, prefersSession(candidate{turn: 500}, best, 1, 4), "with few busy workers, the load need not spread")
}

func TestReturningWorkerCatchesUpWithFewCalls(t *testing.T) {
	p := &poolState{turn: 1000}
	require.EqualValues(t, 990, p.turnLocked(&upstream{turn: 990}))
	require.EqualValues(t, 1000-maxCatchUp, p.turnLocked(&upstream{turn: 3}))
}

func TestNextIncarnationContinuesTheTurn(t *testing.T) {
	p := &poolState{turn: 1000}
	require.EqualValues(t, 990, p.turnAfterLocked(&upstream{turn: 990}))
	require.EqualValues(t, 1000, p.turnAfterLocked(nil), "a new worker has nothing to catch up with")
}
