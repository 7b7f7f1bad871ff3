package loop_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tempool/tempool/workflows/internal/loop"
)

// historyOf is the history of a run that takes a signal at each of some ages.
func historyOf(run string, ages ...time.Duration) *history.History {
	h, began := &history.History{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := began
	add := func(kind enums.EventType, fill func(*history.HistoryEvent)) {
		e := &history.HistoryEvent{EventId: int64(len(h.Events) + 1), EventType: kind, EventTime: timestamppb.New(at)}
		fill(e)
		h.Events = append(h.Events, e)
	}
	queue := &taskqueue.TaskQueue{Name: "q"}
	task := func() {
		add(enums.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, func(e *history.HistoryEvent) {
			e.Attributes =
				&history.HistoryEvent_WorkflowTaskScheduledEventAttributes{
					WorkflowTaskScheduledEventAttributes: &history.WorkflowTaskScheduledEventAttributes{TaskQueue: queue},
				}
		})
		scheduled := int64(len(h.Events))
		add(enums.EVENT_TYPE_WORKFLOW_TASK_STARTED, func(e *history.HistoryEvent) {
			e.Attributes =
				&history.HistoryEvent_WorkflowTaskStartedEventAttributes{
					WorkflowTaskStartedEventAttributes: &history.WorkflowTaskStartedEventAttributes{ScheduledEventId: scheduled},
				}
		})
		add(enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, func(e *history.HistoryEvent) {
			e.Attributes =
				&history.HistoryEvent_WorkflowTaskCompletedEventAttributes{
					WorkflowTaskCompletedEventAttributes: &history.WorkflowTaskCompletedEventAttributes{
						ScheduledEventId: scheduled, StartedEventId: scheduled + 1,
					},
				}
		})
	}
	add(enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, func(e *history.HistoryEvent) {
		e.Attributes =
			&history.HistoryEvent_WorkflowExecutionStartedEventAttributes{
				WorkflowExecutionStartedEventAttributes: &history.WorkflowExecutionStartedEventAttributes{
					WorkflowType: &common.WorkflowType{Name: "untilDue"}, TaskQueue: queue, OriginalExecutionRunId: run,
					FirstExecutionRunId: run,
				}}
	})
	task()
	for _, age := range ages {
		at = began.Add(age)
		add(enums.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, func(e *history.HistoryEvent) {
			e.Attributes =
				&history.HistoryEvent_WorkflowExecutionSignaledEventAttributes{
					WorkflowExecutionSignaledEventAttributes: &history.WorkflowExecutionSignaledEventAttributes{SignalName: "nudge"},
				}
		})
		task()
	}
	return h
}

// A reset gives the run another ID, under which it replays the tasks that it had completed under the first. If it
// continued as new in one of these, it would lose all that came later.
func TestARunThatWasResetIsDueWhenItWouldHaveBeen(t *testing.T) {
	isDue := func(original, run string) (due bool) {
		replayer := worker.NewWorkflowReplayer()
		replayer.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
			l := loop.New(ctx)
			loop.OnSignal(l, "nudge", func(any) {}, func(string) {})
			for {
				if due = l.ContinueDue(0); due {
					return workflow.NewContinueAsNewError(ctx, "untilDue")
				}
				if err := l.Await(); err != nil {
					return err
				}
			}
		}, workflow.RegisterOptions{Name: "untilDue"})
		require.NoError(t, replayer.ReplayWorkflowHistoryWithOptions(log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
			historyOf(original, 22*time.Hour, 22*time.Hour+time.Minute),
			worker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: "w", RunID: run}}))
		return due
	}
	runs := map[bool]int{}
	for i := range 10 {
		original := fmt.Sprintf("run %d", i)
		due := isDue(original, original)
		runs[due]++
		for j := range 5 {
			require.Equal(t, due, isDue(original, fmt.Sprintf("reset %d", j)))
		}
	}
	require.Len(t, runs, 2, "some are due by then, and some are not: %v", runs)
}
