package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// loadsOf returns workers p/0, p/1, … with these numbers of sessions, all of weight 1.
func loadsOf(sessions ...int) []SessionLoad {
	var loads []SessionLoad
	for i, n := range sessions {
		loads = append(loads, SessionLoad{Worker: fmt.Sprint("p/", i), Sessions: n, Weight: 1})
	}
	return loads
}

func weighted(loads []SessionLoad, weights ...int) []SessionLoad {
	for i := range loads {
		loads[i].Weight = weights[i]
	}
	return loads
}

func TestRebalancingMovesOnlyTheExcess(t *testing.T) {
	for name, c := range map[string]struct {
		loads []SessionLoad
		want  []api.SessionFlow
	}{
		"nothing at all":                     {nil, nil},
		"no sessions":                        {loadsOf(0, 0), nil},
		"no sessions and no weights":         {weighted(loadsOf(0, 0), 0, 0), nil},
		"even":                               {loadsOf(3, 3, 3), nil},
		"even to within one, wherever it is": {loadsOf(3, 4, 3, 4), nil},
		"a new worker": {loadsOf(4, 4, 0),
			[]api.SessionFlow{{From: "p/0", To: "p/2", Count: 1}, {From: "p/1", To: "p/2", Count: 1}}},
		"all on one": {loadsOf(0, 9, 0),
			[]api.SessionFlow{{From: "p/1", To: "p/0", Count: 3}, {From: "p/1", To: "p/2", Count: 3}}},
		"the odd one stays where it is": {loadsOf(0, 7), []api.SessionFlow{{From: "p/1", To: "p/0", Count: 3}}},
		"weights": {weighted(loadsOf(6, 6), 2, 1),
			[]api.SessionFlow{{From: "p/1", To: "p/0", Count: 2}}},
		"a worker that should have none": {weighted(loadsOf(5, 1), 0, 3),
			[]api.SessionFlow{{From: "p/0", To: "p/1", Count: 5}}},
		"several give and several take": {loadsOf(10, 0, 8, 2), []api.SessionFlow{
			{From: "p/0", To: "p/1", Count: 5}, {From: "p/2", To: "p/3", Count: 3},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			flows, err := RebalanceSessions(c.loads)
			require.NoError(t, err)
			require.Equal(t, c.want, flows)
		})
	}
}

func TestSessionsCannotBeDistributedWithoutWeights(t *testing.T) {
	_, err := RebalanceSessions(weighted(loadsOf(1, 2), 0, 0))
	require.ErrorIs(t, err, ErrSessions)
}

// fewest tries every way to round the exact parts and returns how few sessions have to move.
func fewest(loads []SessionLoad) int {
	total, weights := 0, 0
	for _, load := range loads {
		total, weights = total+load.Sessions, weights+load.Weight
	}
	best := total + 1
	for choice := range 1 << len(loads) {
		sum, moved, legal := 0, 0, true
		for i, load := range loads {
			target := total * load.Weight / weights
			if choice>>i&1 == 1 {
				legal = legal && total*load.Weight%weights > 0
				target++
			}
			sum += target
			moved += max(0, load.Sessions-target)
		}
		if legal && sum == total {
			best = min(best, moved)
		}
	}
	return best
}

func TestRebalancingMovesTheFewestSessions(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	for range 3000 {
		loads := loadsOf(make([]int, 1+random.IntN(7))...)
		weights := 0
		for i := range loads {
			loads[i].Sessions, loads[i].Weight = random.IntN(30), random.IntN(4)
			weights += loads[i].Weight
		}
		if weights == 0 {
			loads[0].Weight, weights = 1, 1
		}
		flows, err := RebalanceSessions(loads)
		require.NoError(t, err)
		after, moved, total := map[string]int{}, 0, 0
		for _, load := range loads {
			after[load.Worker] = load.Sessions
			total += load.Sessions
		}
		for _, f := range flows {
			require.Positive(t, f.Count)
			require.NotEqual(t, f.From, f.To)
			after[f.From] -= f.Count
			after[f.To] += f.Count
			moved += f.Count
		}
		for _, load := range loads {
			require.GreaterOrEqual(t, after[load.Worker]*weights, total*load.Weight-weights+1, "%+v %+v", loads, flows)
			require.LessOrEqual(t, after[load.Worker]*weights, total*load.Weight+weights-1, "%+v %+v", loads, flows)
		}
		require.Equal(t, fewest(loads), moved, "%+v %+v", loads, flows)
		require.Less(t, len(flows), max(2, len(loads)), "%+v %+v", loads, flows)
	}
}

func TestNewSessionsGoToTheLeastLoaded(t *testing.T) {
	for name, c := range map[string]struct {
		n     int
		loads []SessionLoad
		want  []int
	}{
		"none":                 {0, loadsOf(1, 2), []int{0, 0}},
		"evenly":               {6, loadsOf(0, 0, 0), []int{2, 2, 2}},
		"the first ones first": {4, loadsOf(0, 0, 0), []int{2, 1, 1}},
		"the lowest fill up":   {4, loadsOf(5, 1, 2), []int{0, 3, 1}},
		"an excess stays put":  {2, loadsOf(100, 0, 0), []int{0, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, SpreadSessions(c.n, c.loads))
		})
	}
}
