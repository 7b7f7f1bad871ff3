package tempool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// maxRuns bounds how many runs of one worker FullHistory reads.
const maxRuns = 10_000

// HistoryLength returns the length of the history of a workflow's newest run, in events.
func (c *Client) HistoryLength(ctx context.Context, workflowID string) (int64, error) {
	answer, err := c.temporal.DescribeWorkflowExecution(ctx, workflowID, "")
	return answer.GetWorkflowExecutionInfo().GetHistoryLength(), c.fromTemporal(err, "describe "+workflowID)
}

// FullHistory returns every transition of one worker that Temporal still has, oldest first: the newest from the worker
// itself, older ones from its earlier runs, as far back as the namespace retains them. complete is false if transitions
// are missing, because one run had more of them than a worker keeps or because old runs are gone; HistoryGaps finds
// where. (Transitions in the middle of a run are only in its event history, which tempool replays.)
func (p *Pool) FullHistory(ctx context.Context,
	slot int) (transitions []lifecycle.Transition, complete bool, err error) {
	id := api.WorkerWorkflowID(p.name, slot)
	action := "read the history of " + api.WorkerName(p.name, slot)
	description, err := p.client.temporal.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return nil, false, p.client.fromTemporal(err, action)
	}
	newest, err := p.History(ctx, slot)
	if err != nil {
		return nil, false, err
	}
	// Newest first: each run starts with the ring that the run before it ended with.
	rings := [][]lifecycle.Transition{newest}
	for runID := description.GetWorkflowExecutionInfo().GetExecution().GetRunId(); runID != "" && len(rings) <= maxRuns; {
		started, err := p.client.startedEvent(ctx, id, runID)
		if is[*serviceerror.NotFound](err) {
			break // no longer retained
		}
		if err != nil {
			return nil, false, p.client.fromTemporal(err, action)
		}
		ring, err := CarriedRing(p.client.converter, started)
		if err != nil {
			return nil, false, api.Errorf(api.CodeInvalid, "%s: cannot decode the input of run %s: %w", action, runID, err)
		}
		rings = append(rings, ring)
		runID = started.GetContinuedExecutionRunId()
	}
	slices.Reverse(rings)
	transitions = JoinHistory(rings)
	return transitions, len(HistoryGaps(transitions)) == 0, nil
}

// startedEvent returns the first event of a run.
func (c *Client) startedEvent(ctx context.Context, id,
	runID string) (*history.WorkflowExecutionStartedEventAttributes, error) {
	answer, err := c.temporal.WorkflowService().GetWorkflowExecutionHistory(ctx,
		&workflowservice.GetWorkflowExecutionHistoryRequest{
			Namespace: c.namespace, MaximumPageSize: 1,
			Execution:              &common.WorkflowExecution{WorkflowId: id, RunId: runID},
			HistoryEventFilterType: enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT,
		})
	if err != nil {
		return nil, err
	}
	if events := answer.GetHistory().GetEvents(); len(events) > 0 &&
		events[0].GetWorkflowExecutionStartedEventAttributes() != nil {
		return events[0].GetWorkflowExecutionStartedEventAttributes(), nil
	}
	return nil, errors.New("the run has no WorkflowExecutionStarted event")
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
