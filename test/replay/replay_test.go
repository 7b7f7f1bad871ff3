// Package replay proves that workflows started under an earlier version of Tempool continue under this one: it replays
// recorded histories of every released version.
package replay

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows"
)

// replay replays one history. It discards the replayer's log: the error says the same.
func replay(t *testing.T, events *history.History, emitTo api.Emit,
	interceptors ...interceptor.WorkerInterceptor) error {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true,
		Interceptors: append(workflows.Interceptors(converter.GetDefaultDataConverter(), emitTo), interceptors...)})
	require.NoError(t, err)
	workflows.Register(replayer)
	return replayer.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), events)
}

func TestEveryRecordedHistoryReplays(t *testing.T) {
	t.Parallel()
	for _, one := range histories(t) {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, replay(t, one.events, nil))
		})
	}
}

// TestAnIncompatibleChangeFailsTheReplay guards the test above: a workflow with one extra command must not replay.
func TestAnIncompatibleChangeFailsTheReplay(t *testing.T) {
	t.Parallel()
	for _, one := range histories(t) {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			if !slices.ContainsFunc(one.events.GetEvents(), func(e *history.HistoryEvent) bool {
				return e.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
			}) {
				return // closed before its first workflow task: no command can differ
			}
			require.Error(t, replay(t, one.events, nil, &extraCommand{}))
		})
	}
}

// extraCommand makes every workflow start a timer before anything else.
type extraCommand struct {
	interceptor.WorkerInterceptorBase
}

func (*extraCommand) InterceptWorkflow(_ workflow.Context,
	next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &extraCommandInbound{interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

type extraCommandInbound struct {
	interceptor.WorkflowInboundInterceptorBase
}

func (i *extraCommandInbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	workflow.NewTimer(ctx, time.Second)
	return i.Next.ExecuteWorkflow(ctx, in)
}

// TestAReplayEmitsNothing: events are emitted when they happen.
func TestAReplayEmitsNothing(t *testing.T) {
	t.Parallel()
	for _, one := range histories(t) {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, replay(t, one.events, func(eventType, source string, _ time.Time, data any) {
				t.Errorf("%s emitted %s: %+v", source, eventType, data)
			}))
		})
	}
}
