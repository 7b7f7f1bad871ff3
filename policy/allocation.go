package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tempool/tempool/spec"
)

// Claim is one worker's side of a split. Amounts are in the budget's unit, bytes or thousandths of a core.
type Claim struct {
	// Floor is the least the worker gets.
	Floor int64
	// Ceiling is the most it gets; 0 means as much as there is.
	Ceiling int64
	// Use is what it uses now.
	Use int64
	// Load is the part of its time in which it was busy, 0 to 1.
	Load float64
	// Score is its health score, 0 to 100.
	Score float64
}

// ErrAllocation is wrapped by every error of Split.
var ErrAllocation = errors.New("the budget cannot be split")

// leastUse is the minimum use of a worker as a part of the mean, so that an idle one gets enough to start working.
const leastUse = 0.05

// Split splits a budget by an allocation, one of spec's: share i is that of claim i. Shares are whole, within floor and
// ceiling, and add up to exactly the budget, or to the sum of the ceilings if that is less. Between the bounds they are
// proportional to the claims' weights, which is the split with the greatest weighted geometric mean (weighted
// proportional fairness); whole numbers move a share from that best split by at most one unit, as far as 53 bits hold
// the budget. Equal claims may differ by one unit, the first getting more.
func Split(allocation string, budget int64, claims []Claim) ([]int64, error) {
	weights, err := weightsOf(allocation, claims)
	if err != nil {
		return nil, err
	}
	if len(claims) == 0 {
		return nil, nil
	}
	bounds, total, err := bounded(budget, claims)
	if err != nil {
		return nil, err
	}
	return rounded(filled(weights, bounds, float64(total)), bounds, total), nil
}

func weightsOf(allocation string, claims []Claim) ([]float64, error) {
	var mean float64
	for _, c := range claims {
		mean += max(0, float64(c.Use)) / float64(len(claims))
	}
	weights := make([]float64, len(claims))
	for i, c := range claims {
		use := max(float64(c.Use), leastUse*mean)
		if mean == 0 {
			use = 1
		}
		switch allocation {
		case spec.AllocationEqual:
			weights[i] = 1
		case spec.AllocationWeighted:
			weights[i] = use
		case spec.AllocationAdaptive:
			// A fully busy worker counts twice an idle one; a failing one, whose use is likely a leak, half a well one.
			weights[i] = use * (1 + unit(c.Load)) * (0.5 + 0.5*unit(c.Score/100))
		default:
			return nil, fmt.Errorf("%w: unknown allocation %q; use equal, weighted or adaptive", ErrAllocation, allocation)
		}
	}
	return weights, nil
}

// span is a claim's floor and ceiling, neither beyond the budget.
type span struct{ low, high int64 }

// bounded checks the claims, and returns the total to split.
func bounded(budget int64, claims []Claim) ([]span, int64, error) {
	if budget < 0 {
		return nil, 0, fmt.Errorf("%w: the budget is %d; it must be 0 or more", ErrAllocation, budget)
	}
	bounds := make([]span, len(claims))
	left, total := budget, int64(0)
	for i, c := range claims {
		if c.Floor < 0 || c.Ceiling < 0 || (c.Ceiling > 0 && c.Floor > c.Ceiling) {
			return nil, 0, fmt.Errorf("%w: claim %d has floor %d and ceiling %d; the floor must be 0 or more and not above "+
				"the ceiling",
				ErrAllocation, i, c.Floor, c.Ceiling)
		}
		if c.Floor > left {
			return nil, 0, fmt.Errorf("%w: %d is less than the sum of the floors of %d claims; raise the budget, lower the "+
				"floors or run fewer workers",
				ErrAllocation, budget, len(claims))
		}
		left -= c.Floor
		bounds[i] = span{c.Floor, budget}
		if c.Ceiling > 0 {
			bounds[i].high = min(budget, c.Ceiling)
		}
		total += min(bounds[i].high, budget-total)
	}
	return bounds, total, nil
}

// filled finds by bisection the level at which shares of level × weight, clamped to their bounds, add up to total.
func filled(weights []float64, bounds []span, total float64) []float64 {
	shares := make([]float64, len(weights))
	at := func(level float64) (sum float64) {
		for i, w := range weights {
			shares[i] = max(float64(bounds[i].low), min(float64(bounds[i].high), level*w))
			sum += shares[i]
		}
		return sum
	}
	low, high := 0.0, (total+1)/slices.Min(weights)
	for {
		middle := low + (high-low)/2
		if middle <= low || middle >= high {
			break
		}
		if at(middle) < total {
			low = middle
		} else {
			high = middle
		}
	}
	at(high)
	return shares
}

// rounded makes the shares whole and their sum exact: what rounding down leaves goes to the largest fractions first.
func rounded(shares []float64, bounds []span, total int64) []int64 {
	whole, order := make([]int64, len(shares)), make([]int, len(shares))
	left := total
	for i, s := range shares {
		whole[i] = max(bounds[i].low, min(bounds[i].high, int64(math.Floor(s))))
		left -= whole[i]
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(shares[b]-float64(whole[b]), shares[a]-float64(whole[a]))
	})
	one := int64(1)
	if left < 0 {
		one = -1
	}
	for left != 0 { // once, as long as floats hold the budget
		for _, i := range order {
			if left == 0 {
				break
			}
			step := max(bounds[i].low-whole[i], min(bounds[i].high-whole[i], one))
			whole[i] += step
			left -= step
		}
	}
	return whole
}
