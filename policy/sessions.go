package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// SessionLoad is how many sessions prefer a worker, and how many of all it should have.
type SessionLoad struct {
	Worker   string
	Sessions int
	// Weight is its part of all sessions, relative to the other workers' weights; one of weight 0 should have none.
	Weight int
}

// SessionFlow is so many sessions that go from one worker to another.
type SessionFlow struct {
	From  string `json:"from,omitempty"`
	To    string `json:"to"`
	Count int    `json:"count"`
}

// ErrSessions is wrapped by the errors of SpreadSessions and RebalanceSessions.
var ErrSessions = errors.New("the sessions cannot be distributed")

// RebalanceSessions says which sessions have to go where so that every worker has its part of all, to within one session. No other
// plan that reaches this moves fewer, and it has fewer flows than there are workers. The order of the workers decides between equals.
func RebalanceSessions(loads []SessionLoad) ([]SessionFlow, error) {
	targets, err := sessionTargets(loads)
	if err != nil {
		return nil, err
	}
	var flows []SessionFlow
	to, room := 0, 0 // the worker that takes, and how many more it takes
	for i, load := range loads {
		for left := load.Sessions - targets[i]; left > 0; {
			for room <= 0 {
				room = targets[to] - loads[to].Sessions
				to++
			}
			count := min(left, room)
			flows = append(flows, SessionFlow{load.Worker, loads[to-1].Worker, count})
			left, room = left-count, room-count
		}
	}
	return flows, nil
}

// sessionTargets are whole numbers that add up to all sessions, each worker's exact part rounded up or down. Who is rounded up is free, so
// it is first those who have the session already.
func sessionTargets(loads []SessionLoad) ([]int, error) {
	total, weights := 0, 0
	for _, load := range loads {
		if load.Sessions < 0 || load.Weight < 0 {
			return nil, fmt.Errorf("%w: worker %s has %d sessions and weight %d, and neither can be negative", ErrSessions, load.Worker, load.Sessions, load.Weight)
		}
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
	var between []int // whose exact part is no whole number
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

// SpreadSessions says how many of n further sessions each worker takes, so that all of them end as even by their weights as can be reached
// without moving what they have. The order of the workers decides between equals.
func SpreadSessions(n int, loads []SessionLoad) ([]int, error) {
	takes := make([]int, len(loads))
	for range n {
		best := -1
		for i, load := range loads {
			if load.Weight > 0 && (best < 0 || (load.Sessions+takes[i]+1)*loads[best].Weight < (loads[best].Sessions+takes[best]+1)*load.Weight) {
				best = i
			}
		}
		if best < 0 {
			return nil, fmt.Errorf("%w: no worker has a weight above 0", ErrSessions)
		}
		takes[best]++
	}
	return takes, nil
}
