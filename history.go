package tempool

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/tempool/tempool/lifecycle"
)

// HistoryLength returns the length of the history of a workflow's newest run, in events.
func (c *Client) HistoryLength(ctx context.Context, workflowID string) (int64, error) {
	answer, err := c.temporal.DescribeWorkflowExecution(ctx, workflowID, "")
	return answer.GetWorkflowExecutionInfo().GetHistoryLength(), c.fromTemporal(err, "describe "+workflowID)
}

// CarriedRing returns the ring of transitions in the input of a worker's run; a first run has none.
func CarriedRing(from converter.DataConverter,
	started *history.WorkflowExecutionStartedEventAttributes) ([]lifecycle.Transition, error) {
	var input struct {
		Machine struct {
			Ring []lifecycle.Transition `json:"ring"`
		} `json:"machine"`
	}
	if len(started.GetInput().GetPayloads()) == 0 {
		return nil, nil
	}
	err := from.FromPayload(started.GetInput().GetPayloads()[0], &input)
	return input.Machine.Ring, err
}

// JoinHistory merges overlapping windows of one worker's transitions, oldest window first. HistoryGaps finds what no
// window has.
func JoinHistory(rings [][]lifecycle.Transition) []lifecycle.Transition {
	merged := []lifecycle.Transition{}
	for _, ring := range rings {
		shared := min(len(merged), len(ring))
		for shared > 0 && !slices.EqualFunc(merged[len(merged)-shared:], ring[:shared], isCopy) {
			shared--
		}
		merged = append(merged, ring[shared:]...)
	}
	return merged
}

// isCopy reports whether two are copies of one transition, whichever run they come from.
func isCopy(a, b lifecycle.Transition) bool {
	return a.From == b.From && a.To == b.To && a.Event == b.Event && a.Reason == b.Reason &&
		a.DurationMS == b.DurationMS &&
		a.Timestamp.Equal(b.Timestamp) && a.Incarnation == b.Incarnation && maps.Equal(a.Metadata, b.Metadata)
}

// HistoryGaps returns the indexes in transitions, oldest first, before which some are missing; 0 means that the first
// incarnation's start is missing.
func HistoryGaps(transitions []lifecycle.Transition) []int {
	var gaps []int
	var step lifecycle.Transition // the newest so far that is not a note
	for i, t := range transitions {
		switch {
		case i == 0 && t.From != lifecycle.Created, i > 0 && !follows(step, t):
			gaps = append(gaps, i)
		case t.IsNote() && i > 0:
			continue // within the state that step entered
		}
		step = t
		if t.IsNote() {
			step.Timestamp = entered(t)
		}
	}
	return gaps
}

// follows reports whether no transition is missing between two: the later one leaves, or is a note in, the state that
// the earlier one entered, and its duration in that state reaches back to that moment.
func follows(earlier, later lifecycle.Transition) bool {
	return later.From == earlier.To && entered(later).Sub(earlier.Timestamp).Abs() <= durationGrain
}

// entered returns when the worker entered the state that a transition leaves.
func entered(t lifecycle.Transition) time.Time {
	return t.Timestamp.Add(-time.Duration(t.DurationMS) * time.Millisecond)
}

// durationGrain allows for durations in whole milliseconds.
const durationGrain = 2 * time.Millisecond
