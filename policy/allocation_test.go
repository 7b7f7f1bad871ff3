package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

var allocations = []string{spec.AllocationEqual, spec.AllocationWeighted, spec.AllocationAdaptive}

func TestABudgetIsSplitAsAsked(t *testing.T) {
	for _, c := range []struct {
		name   string
		way    string
		budget int64
		claims []policy.Claim
		want   []int64
	}{
		{"nobody", spec.AllocationEqual, 100, nil, nil},
		{"equal", spec.AllocationEqual, 90, []policy.Claim{{Use: 1}, {Use: 50}, {Use: 3}}, []int64{30, 30, 30}},
		{"equal with a rest", spec.AllocationEqual, 100, []policy.Claim{{}, {}, {}}, []int64{34, 33, 33}},
		{"by use", spec.AllocationWeighted, 100, []policy.Claim{{Use: 10}, {Use: 30}}, []int64{25, 75}},
		{"nobody uses anything", spec.AllocationWeighted, 100, []policy.Claim{{}, {}}, []int64{50, 50}},
		{"one idles", spec.AllocationWeighted, 1025, []policy.Claim{{Use: 0}, {Use: 100}}, []int64{25, 1000}},
		{"a floor", spec.AllocationWeighted, 100, []policy.Claim{{Use: 1, Floor: 20}, {Use: 30}, {Use: 10}},
			[]int64{20, 60, 20}},
		{"a ceiling", spec.AllocationEqual, 100, []policy.Claim{{Ceiling: 10}, {}, {}}, []int64{10, 45, 45}},
		{"more than anybody may have", spec.AllocationEqual, 100, []policy.Claim{{Ceiling: 10}, {Ceiling: 20}},
			[]int64{10, 20}},
		{"busy counts twice idle", spec.AllocationAdaptive, 90,
			[]policy.Claim{{Use: 5, Load: 1, Score: 100}, {Use: 5, Score: 100}}, []int64{60, 30}},
		{"failing counts half of well", spec.AllocationAdaptive, 90, []policy.Claim{{Use: 5, Score: 0}, {Use: 5, Score: 100}},
			[]int64{30, 60}},
		{"just the floors", spec.AllocationEqual, 30, []policy.Claim{{Floor: 10}, {Floor: 20}}, []int64{10, 20}},
		{"nothing", spec.AllocationEqual, 0, []policy.Claim{{}, {}}, []int64{0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := policy.Split(c.way, c.budget, c.claims)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestABudgetThatCannotBeSplitIsAnErrorThatSaysWhy(t *testing.T) {
	for want, c := range map[string]struct {
		way    string
		budget int64
		claims []policy.Claim
	}{
		"raise the budget":          {spec.AllocationEqual, 29, []policy.Claim{{Floor: 10}, {Floor: 20}}},
		"not above the":             {spec.AllocationEqual, 29, []policy.Claim{{Floor: 10, Ceiling: 9}}},
		"claim 1 has floor":         {spec.AllocationEqual, 29, []policy.Claim{{}, {Floor: -1}}},
		"must be 0 or more":         {spec.AllocationEqual, -1, []policy.Claim{{}}},
		"sum of the floors":         {spec.AllocationEqual, 100, []policy.Claim{{Floor: math.MaxInt64}, {Floor: 1}}},
		`unknown allocation "fair"`: {"fair", 1, []policy.Claim{{}}},
	} {
		_, err := policy.Split(c.way, c.budget, c.claims)
		require.ErrorIs(t, err, policy.ErrAllocation)
		require.ErrorContains(t, err, want)
	}
}

// drawn makes claims whose floors fit into the budget.
func drawn(draw *rand.Rand, n int, budget int64) []policy.Claim {
	claims := make([]policy.Claim, n)
	for i := range claims {
		c := &claims[i]
		c.Use, c.Load, c.Score = draw.Int64N(1+budget/int64(n)), draw.Float64(), 100*draw.Float64()
		if draw.IntN(3) == 0 {
			c.Floor = draw.Int64N(1 + budget/int64(n))
		}
		if draw.IntN(3) == 0 {
			c.Ceiling = max(1, c.Floor+draw.Int64N(1+budget/int64(n)))
		}
	}
	return claims
}

func TestSharesAreExactAndWithinBounds(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 1_000 {
		n := 1 + draw.IntN(30)
		budget := draw.Int64N(math.MaxInt64) >> draw.IntN(63)
		claims := drawn(draw, n, budget)
		for _, way := range allocations {
			shares, err := policy.Split(way, budget, claims)
			require.NoError(t, err)
			var sum, room int64
			for i, c := range claims {
				high := budget
				if c.Ceiling > 0 {
					high = min(budget, c.Ceiling)
				}
				require.GreaterOrEqual(t, shares[i], c.Floor)
				require.LessOrEqual(t, shares[i], high)
				sum += shares[i]
				room += min(high, budget-room)
			}
			require.Equal(t, room, sum)
		}
	}
}

// TestASplitIsWithinFivePercentOfTheBest compares with every possible split of small budgets, by the weighted geometric
// mean of the shares.
func TestASplitIsWithinFivePercentOfTheBest(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		budget := 10 + draw.Int64N(60)
		claims := drawn(draw, 3, budget)
		weights, sum := make([]float64, 3), 0.0
		for i := range claims {
			c := &claims[i]
			c.Floor = max(1, c.Floor) // a share of 0 makes the mean 0, however good the rest
			c.Use += 1 + budget/10
			if c.Ceiling > 0 {
				c.Ceiling = max(c.Ceiling, c.Floor)
			}
			weights[i] = float64(c.Use)
			sum += weights[i]
		}
		shares, err := policy.Split(spec.AllocationWeighted, budget, claims)
		require.NoError(t, err)
		mean := func(shares ...int64) float64 {
			logs := 0.0
			for i, s := range shares {
				logs += weights[i] / sum * math.Log(float64(s))
			}
			return math.Exp(logs)
		}
		within := func(i int, share int64) bool {
			return share >= claims[i].Floor && (claims[i].Ceiling == 0 || share <= claims[i].Ceiling)
		}
		best := 0.0
		total := shares[0] + shares[1] + shares[2]
		for a := int64(1); a <= total; a++ {
			for b := int64(1); a+b <= total; b++ {
				if c := total - a - b; c > 0 && within(0, a) && within(1, b) && within(2, c) {
					best = max(best, mean(a, b, c))
				}
			}
		}
		require.Positive(t, best)
		require.GreaterOrEqual(t, mean(shares...), 0.95*best, "%+v %v", claims, shares)
	}
}
