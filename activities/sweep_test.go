package activities

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/testsuite"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tempool/tempool/api"
)

// runTwice runs part of a sweep twice in one activity; heartbeat, if not nil, receives the heartbeats.
func runTwice(t *testing.T, part func(context.Context) error, heartbeat func(*activity.Info, converter.EncodedValues)) {
	t.Helper()
	twice := func(ctx context.Context) error {
		if err := part(ctx); err != nil {
			return err
		}
		return part(ctx)
	}
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivity(twice)
	env.SetOnActivityHeartbeatListener(heartbeat)
	_, err := env.ExecuteActivity(twice)
	require.NoError(t, err)
}

// A server whose clock was an hour ahead closed a workflow. What closes in the hour after the correction must be found.
func TestAClosingInTheFutureHidesNoLaterOnes(t *testing.T) {
	var queries []string
	temporal := &mocks.Client{}
	temporal.On("ListWorkflow", mock.Anything, mock.Anything).Run(func(call mock.Arguments) {
		queries = append(queries, call.Get(1).(*workflowservice.ListWorkflowExecutionsRequest).GetQuery())
	}).Return(&workflowservice.ListWorkflowExecutionsResponse{Executions: []*workflow.WorkflowExecutionInfo{{
		Execution: &common.WorkflowExecution{WorkflowId: api.WorkerWorkflowID("p", 0), RunId: "r"},
		CloseTime: timestamppb.New(time.Now().Add(time.Hour)),
	}}}, nil)
	temporal.On("DescribeWorkflowExecution", mock.Anything, mock.Anything, mock.Anything).Return(nil,
		serviceerror.NewNotFound("gone"))
	s := sweep{
		Sweeper:  &Sweeper{Temporal: temporal, Logger: slog.New(slog.DiscardHandler)},
		progress: api.SweepProgress{After: time.Now().Add(-time.Minute)}, seen: map[string]time.Time{},
		failures: map[string]int{},
	}
	runTwice(t, s.once, nil)
	require.Len(t, queries, 2)
	_, bound, _ := strings.Cut(queries[1], "CloseTime >= '")
	bound, _, _ = strings.Cut(bound, "'")
	from, err := time.Parse(time.RFC3339Nano, bound)
	require.NoError(t, err)
	require.True(t, from.Before(time.Now()), bound)
	temporal.AssertNumberOfCalls(t, "DescribeWorkflowExecution", 1)
}

// A run of the worker was terminated, and the next one is paused.
func TestASweepTakesNoPausedWorkerForClosed(t *testing.T) {
	temporal := &mocks.Client{}
	temporal.On("ListWorkflow", mock.Anything,
		mock.Anything).Return(&workflowservice.ListWorkflowExecutionsResponse{Executions: []*workflow.WorkflowExecutionInfo{{
		Execution: &common.WorkflowExecution{WorkflowId: api.WorkerWorkflowID("p", 0), RunId: "r"},
		CloseTime: timestamppb.Now(),
	}}}, nil)
	temporal.On("DescribeWorkflowExecution", mock.Anything, api.WorkerWorkflowID("p", 0),
		"").Return(&workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{Status: enums.WORKFLOW_EXECUTION_STATUS_PAUSED},
	}, nil)
	s := sweep{
		Sweeper:  &Sweeper{Temporal: temporal, Logger: slog.New(slog.DiscardHandler)},
		progress: api.SweepProgress{After: time.Now().Add(-time.Minute)}, seen: map[string]time.Time{},
		failures: map[string]int{},
	}
	runTwice(t, s.once, nil)
	temporal.AssertNumberOfCalls(t, "DescribeWorkflowExecution", 1)
	temporal.AssertNotCalled(t, "SignalWorkflow", mock.Anything, mock.Anything, mock.Anything, mock.Anything,
		mock.Anything)
}
