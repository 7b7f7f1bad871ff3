package tempool

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// maxRuns bounds how many runs of one worker FullHistory walks back.
const maxRuns = 10_000

// FullHistory is every transition of one worker that can still be read, oldest first: the newest from the worker itself, the
// older ones from the runs before, as far back as the namespace retains them. complete is false when transitions are missing,
// because more happened within one run than a worker keeps or because old runs are gone; HistoryGaps tells where. (What a run
// did in its middle is in no answer of Temporal but its event history; ctl replays that.)
func (p *Pool) FullHistory(ctx context.Context, slot int) (transitions []lifecycle.Transition, complete bool, err error) {
	id := api.WorkerWorkflowID(p.name, slot)
	what := "read the history of " + api.WorkerName(p.name, slot)
	description, err := p.client.temporal.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return nil, false, p.client.fromTemporal(err, what)
	}
	newest, err := p.History(ctx, slot)
	if err != nil {
		return nil, false, err
	}
	// rings are collected newest first: what a run began with is what the run before it ended with.
	rings := [][]lifecycle.Transition{newest}
	for runID := description.GetWorkflowExecutionInfo().GetExecution().GetRunId(); runID != "" && len(rings) <= maxRuns; {
		started, err := p.client.startOfRun(ctx, id, runID)
		if notFound(err) {
			break // no longer retained
		}
		if err != nil {
			return nil, false, p.client.fromTemporal(err, what)
		}
		ring, err := carriedRing(started)
		if err != nil {
			return nil, false, api.Errorf(api.CodeInvalid, "%s: the input of run %s cannot be read: %w", what, runID, err)
		}
		rings = append(rings, ring)
		runID = started.GetContinuedExecutionRunId()
	}
	slices.Reverse(rings)
	transitions = JoinHistory(rings)
	return transitions, len(HistoryGaps(transitions)) == 0, nil
}

func (c *Client) startOfRun(ctx context.Context, id, runID string) (*history.WorkflowExecutionStartedEventAttributes, error) {
	answer, err := c.temporal.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: c.namespace, MaximumPageSize: 1,
		Execution:              &common.WorkflowExecution{WorkflowId: id, RunId: runID},
		HistoryEventFilterType: enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT,
	})
	if err != nil {
		return nil, err
	}
	if events := answer.GetHistory().GetEvents(); len(events) > 0 && events[0].GetWorkflowExecutionStartedEventAttributes() != nil {
		return events[0].GetWorkflowExecutionStartedEventAttributes(), nil
	}
	return nil, errors.New("the run has no first event")
}

// carriedRing is the ring of transitions in the input of a worker's run; a first run has none.
func carriedRing(started *history.WorkflowExecutionStartedEventAttributes) ([]lifecycle.Transition, error) {
	var input struct {
		Machine struct {
			Ring []lifecycle.Transition `json:"ring"`
		} `json:"machine"`
	}
	if len(started.GetInput().GetPayloads()) == 0 {
		return nil, nil
	}
	err := converter.GetDefaultDataConverter().FromPayload(started.GetInput().GetPayloads()[0], &input)
	return input.Machine.Ring, err
}

// JoinHistory joins overlapping windows on the transitions of one worker, oldest window first. What no window shows is left out;
// HistoryGaps finds where.
func JoinHistory(rings [][]lifecycle.Transition) []lifecycle.Transition {
	merged := []lifecycle.Transition{}
	keys := []string{}
	for _, ring := range rings {
		next := make([]string, len(ring))
		for i, t := range ring {
			next[i] = transitionKey(t)
		}
		shared := min(len(keys), len(next))
		for shared > 0 && !slices.Equal(keys[len(keys)-shared:], next[:shared]) {
			shared--
		}
		merged = append(merged, ring[shared:]...)
		keys = append(keys, next[shared:]...)
	}
	return merged
}

// transitionKey is equal for two copies of one transition, whichever run they were read from.
func transitionKey(t lifecycle.Transition) string {
	t.Timestamp = t.Timestamp.UTC()
	text, err := json.Marshal(t)
	if err != nil {
		return t.Timestamp.Format(time.RFC3339Nano) + string(t.From) + string(t.Event) + string(t.To)
	}
	return string(text)
}

// HistoryGaps lists the indexes in transitions, oldest first, before which some are missing; 0 stands for the beginning of the
// worker's life.
func HistoryGaps(transitions []lifecycle.Transition) []int {
	var gaps []int
	var step lifecycle.Transition // the newest so far that was no note
	for i, t := range transitions {
		switch {
		case i == 0 && t.From != lifecycle.Created, i > 0 && !follows(step, t):
			gaps = append(gaps, i)
		case t.Note() && i > 0:
			continue // it happened within the state that step entered
		}
		step = t
		if t.Note() {
			step.Timestamp = entered(t)
		}
	}
	return gaps
}

// follows reports whether nothing happened between two transitions: the later one leaves, or is a note in, the state that the earlier one
// entered, and the time it spent there reaches back to when that was.
func follows(earlier, later lifecycle.Transition) bool {
	return later.From == earlier.To && entered(later).Sub(earlier.Timestamp).Abs() <= durationGrain
}

// entered is when the worker entered the state that a transition is from.
func entered(t lifecycle.Transition) time.Time {
	return t.Timestamp.Add(-time.Duration(t.DurationMS) * time.Millisecond)
}

// durationGrain is what durations in whole milliseconds leave open.
const durationGrain = 2 * time.Millisecond
