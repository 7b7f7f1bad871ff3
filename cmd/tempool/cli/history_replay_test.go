package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
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
	none, err := replayRun(converter.GetDefaultDataConverter(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}
