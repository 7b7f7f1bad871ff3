package cli

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// TestATaskThatIsNotCompleteIsNotReplayed: the newest run of a worker may be within one.
func TestATaskThatIsNotCompleteIsNotReplayed(t *testing.T) {
	paths, err := filepath.Glob("../../../test/replay/testdata/v0.1/crashing-0.*.json.gz")
	require.NoError(t, err)
	file, err := os.Open(paths[0])
	require.NoError(t, err)
	defer file.Close()
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	content, err := io.ReadAll(text)
	require.NoError(t, err)
	var run history.History
	require.NoError(t, protojson.Unmarshal(content, &run))
	replayed := func(events int) int {
		return len(replayRun(converter.GetDefaultDataConverter(), run.Events[:events]))
	}
	all := replayed(len(run.Events))
	completed := len(run.Events) // the number of events before the task that recorded the last transition was complete
	for completed > 0 && replayed(completed) == all {
		completed--
	}
	require.Equal(t, enums.EVENT_TYPE_WORKFLOW_TASK_STARTED, run.Events[completed-1].EventType)
	require.NotZero(t, replayed(completed))
	require.Zero(t, replayed(1))
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
