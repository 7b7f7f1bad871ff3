package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/sdk/converter"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestUnprocessedEventsAreNotReplayed(t *testing.T) {
	kinds := func(kinds ...enums.EventType) []*history.HistoryEvent {
		var events []*history.HistoryEvent
		for _, kind := range kinds {
			events = append(events, &history.HistoryEvent{EventType: kind})
		}
		return events
	}
	const (
		started   = enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
		scheduled = enums.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
		begun     = enums.EVENT_TYPE_WORKFLOW_TASK_STARTED
		completed = enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
		activity  = enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
		timer     = enums.EVENT_TYPE_TIMER_STARTED
		signal    = enums.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
		continued = enums.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
	)
	for name, c := range map[string]struct {
		events []*history.HistoryEvent
		keep   int
	}{
		"nothing decided yet":     {kinds(started, scheduled, begun), 0},
		"a task and its commands": {kinds(started, scheduled, begun, completed, activity, timer), 6},
		"a signal not seen yet":   {kinds(started, scheduled, begun, completed, activity, signal, scheduled, begun), 5},
		"two tasks": {kinds(started, scheduled, begun, completed, signal, scheduled, begun, completed, timer,
			signal), 9},
		"a closed run": {kinds(started, scheduled, begun, completed, continued), 5},
	} {
		t.Run(name, func(t *testing.T) { require.Len(t, replayablePrefix(c.events), c.keep) })
	}
	require.Empty(t, replayRun(converter.GetDefaultDataConverter(), nil))
}

func TestARunThatCannotBeReplayedHasWhatItBeganWith(t *testing.T) {
	ring := []lifecycle.Transition{{From: lifecycle.Created, To: lifecycle.Starting, Event: lifecycle.Start}}
	input, err := converter.GetDefaultDataConverter().ToPayloads(map[string]any{"machine": map[string]any{"ring": ring}})
	require.NoError(t, err)
	events := []*history.HistoryEvent{
		{EventId: 1, EventType: enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
			Attributes: &history.HistoryEvent_WorkflowExecutionStartedEventAttributes{
				WorkflowExecutionStartedEventAttributes: &history.WorkflowExecutionStartedEventAttributes{
					WorkflowType: &common.WorkflowType{Name: "OfAnotherBuild"}, Input: input,
					TaskQueue: &taskqueue.TaskQueue{Name: api.TaskQueue}}}},
		{EventId: 2, EventType: enums.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED},
		{EventId: 3, EventType: enums.EVENT_TYPE_WORKFLOW_TASK_STARTED},
		{EventId: 4, EventType: enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
			Attributes: &history.HistoryEvent_WorkflowTaskCompletedEventAttributes{
				WorkflowTaskCompletedEventAttributes: &history.WorkflowTaskCompletedEventAttributes{}}},
	}
	require.Equal(t, ring, replayRun(converter.GetDefaultDataConverter(), events))
}
