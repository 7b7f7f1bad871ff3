package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tempool/tempool/api"
)

// SessionLoad is a worker's number of sessions, and its target share.
type SessionLoad struct {
	Worker   string
	Sessions int
	// Weight is the worker's share of all sessions, relative to the other weights; 0 is none.
	Weight int
}

// ErrSessions is wrapped by the errors of RebalanceSessions.
var ErrSessions = errors.New("the sessions cannot be distributed")

// RebalanceSessions plans the moves after which every worker has its share, to within one session. The plan moves the
// fewest sessions possible, and has fewer flows than workers. The order of the workers breaks ties.
func RebalanceSessions(loads []SessionLoad) ([]api.SessionFlow, error) {
	targets, err := sessionTargets(loads)
	if err != nil {
		return nil, err
	}
	var flows []api.SessionFlow
	to, free := 0, 0 // the receiving worker, and how many more it takes
	for i, load := range loads {
		for left := load.Sessions - targets[i]; left > 0; {
			for free <= 0 {
				free = targets[to] - loads[to].Sessions
				to++
			}
			count := min(left, free)
			flows = append(flows, api.SessionFlow{From: load.Worker, To: loads[to-1].Worker, Count: count})
			left, free = left-count, free-count
		}
	}
	return flows, nil
}

// sessionTargets are the workers' shares as whole numbers that add up to all sessions: exact shares rounded up or down.
// Workers that already have the session are rounded up first, which saves moves.
func sessionTargets(loads []SessionLoad) ([]int, error) {
	total, weights := 0, 0
	for _, load := range loads {
		total, weights = total+load.Sessions, weights+load.Weight
	}
	targets := make([]int, len(loads))
	if total == 0 {
		return targets, nil
	}
	if weights == 0 {
		return nil, fmt.Errorf("%w: no worker has a weight above 0", ErrSessions)
	}
	left := total
	var between []int // workers whose exact share is not whole
	for i, load := range loads {
		targets[i] = total * load.Weight / weights
		left -= targets[i]
		if total*load.Weight%weights > 0 {
			between = append(between, i)
		}
	}
	has := func(i int) int {
		if loads[i].Sessions > targets[i] {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(between, func(i, j int) int {
		return cmp.Or(cmp.Compare(has(i), has(j)), cmp.Compare(total*loads[j].Weight%weights, total*loads[i].Weight%weights))
	})
	for _, i := range between[:left] {
		targets[i]++
	}
	return targets, nil
}

// SpreadSessions is how many of n additional sessions each worker takes, of which there must be one, so that the result
// is as even as possible without moving existing sessions. Weights do not count. The order of the workers breaks ties.
func SpreadSessions(n int, loads []SessionLoad) []int {
	takes := make([]int, len(loads))
	for range n {
		best := 0
		for i, load := range loads {
			if load.Sessions+takes[i] < loads[best].Sessions+takes[best] {
				best = i
			}
		}
		takes[best]++
	}
	return takes
}
