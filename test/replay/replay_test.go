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
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows"
)

// replay replays one history. It discards the replayer's log: the error says the same.
func replay(t *testing.T, events *history.History, emitTo api.Emit,
	interceptors ...interceptor.WorkerInterceptor) error {
	t.Helper()
	return replayWith(t, events,
		append(workflows.Interceptors(converter.GetDefaultDataConverter(), emitTo), interceptors...))
}

func replayWith(t *testing.T, events *history.History, interceptors []interceptor.WorkerInterceptor) error {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true,
		Interceptors: interceptors})
	require.NoError(t, err)
	workflows.Register(replayer)
	return replayer.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), events)
}

// TestEveryRecordedHistoryReplays and emits nothing: events are emitted when they happen.
func TestEveryRecordedHistoryReplays(t *testing.T) {
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

// TestAReplayRecordsAllTransitionsOfARun: ReplayInterceptors emit the whole record of a worker, notes included.
func TestAReplayRecordsAllTransitionsOfARun(t *testing.T) {
	t.Parallel()
	runs, notes := 0, 0
	for _, one := range histories(t) {
		var all []lifecycle.Transition
		asked := &recordReader{record: func() ([]lifecycle.Transition, error) { return nil, nil }}
		interceptors := append(workflows.ReplayInterceptors(converter.GetDefaultDataConverter(),
			func(_, _ string, _ time.Time, data any) {
				if event, is := data.(api.TransitionEvent); is {
					all = append(all, event.Transition)
				}
			}), asked)
		require.NoError(t, replayWith(t, one.events, interceptors))
		ring, err := asked.record()
		require.NoError(t, err)
		runs += min(1, len(ring))
		first := one.events.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
		if len(ring) == lifecycle.RingSize || first.GetContinuedExecutionRunId() != "" { // it has the newest of all runs
			newest := min(len(all), len(ring))
			all, ring = all[len(all)-newest:], ring[len(ring)-newest:]
		}
		require.Equal(t, append([]lifecycle.Transition{}, ring...), append([]lifecycle.Transition{}, all...), one.name)
		for _, transition := range all {
			if transition.IsNote() {
				notes++
			}
		}
	}
	require.Greater(t, runs, 20)
	require.Positive(t, notes)
}

// recordReader gets hold of the query for the record of a worker.
type recordReader struct {
	interceptor.WorkerInterceptorBase
	record func() ([]lifecycle.Transition, error)
}

func (r *recordReader) InterceptWorkflow(_ workflow.Context,
	next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &recordInbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, r}
}

type recordInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	reader *recordReader
}

func (i *recordInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(&recordOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: outbound}, i.reader})
}

type recordOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	reader *recordReader
}

func (o *recordOutbound) SetQueryHandler(ctx workflow.Context, query string, handler any) error {
	if record, is := handler.(func() ([]lifecycle.Transition, error)); is && query == api.QueryHistory {
		o.reader.record = record
	}
	return o.Next.SetQueryHandler(ctx, query, handler)
}
