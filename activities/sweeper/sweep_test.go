package sweeper

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

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
	s := newSweep(&Sweeper{Temporal: temporal, Logger: slog.New(slog.DiscardHandler)})
	for range 2 {
		require.NoError(t, s.listClosed(t.Context()))
		require.Equal(t, []string{"p"}, s.due, "once")
	}
	_, bound, _ := strings.Cut(queries[1], "CloseTime >= '")
	bound, _, _ = strings.Cut(bound, "'")
	from, err := time.Parse(time.RFC3339Nano, bound)
	require.NoError(t, err)
	require.True(t, from.Before(time.Now()), bound)
}

// A namespace without a pool of Tempool: an agent that says nothing for the heartbeat timeout loses the sweep.
func TestASweepThatFindsNothingSaysThatItWorks(t *testing.T) {
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	heartbeats := 0
	env.SetOnActivityHeartbeatListener(func(*activity.Info, converter.EncodedValues) { heartbeats++ })
	s := newSweep(&Sweeper{Temporal: answers(nil, nil), Logger: slog.New(slog.DiscardHandler)})
	s.listed, s.longRuns = time.Now(), time.Now() // as in nearly all sweeps
	env.RegisterActivityWithOptions(s.once, activity.RegisterOptions{Name: "once"})
	_, err := env.ExecuteActivity("once")
	require.NoError(t, err)
	require.Positive(t, heartbeats)
}

// heartbeats is an interceptor that keeps the contexts of the heartbeats.
type heartbeats struct {
	interceptor.WorkerInterceptorBase
	interceptor.ActivityInboundInterceptorBase
	interceptor.ActivityOutboundInterceptorBase
	contexts []context.Context
}

func (h *heartbeats) InterceptActivity(_ context.Context,
	next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	h.ActivityInboundInterceptorBase.Next = next
	return h
}

func (h *heartbeats) Init(outbound interceptor.ActivityOutboundInterceptor) error {
	h.ActivityOutboundInterceptorBase.Next = outbound
	return h.ActivityInboundInterceptorBase.Init(h)
}

func (h *heartbeats) RecordHeartbeat(ctx context.Context, _ ...any) {
	h.contexts = append(h.contexts, ctx)
}

// Each request has a context that ends with it. The SDK sends later heartbeats with the context of an earlier one, and
// cancels the activity if that has ended: an agent lost the sweep every half minute.
func TestAHeartbeatOutlivesTheRequestThatItPrecedes(t *testing.T) {
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	sent := &heartbeats{}
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{sent}})
	sweeper := &Sweeper{Temporal: answers(nil, nil)}
	env.RegisterActivityWithOptions(sweeper.check, activity.RegisterOptions{Name: "check"})
	_, err := env.ExecuteActivity("check", "p")
	require.NoError(t, err)
	require.NotEmpty(t, sent.contexts)
	for _, ctx := range sent.contexts {
		require.NoError(t, ctx.Err())
	}
}

// answers makes a client to which these workflows exist, of which visibility lists those in listed.
func answers(listed []string, existing map[string]*workflow.WorkflowExecutionInfo) *mocks.Client {
	temporal := &mocks.Client{}
	temporal.On("ListWorkflow", mock.Anything, mock.Anything).Return(
		func(_ context.Context,
			r *workflowservice.ListWorkflowExecutionsRequest) *workflowservice.ListWorkflowExecutionsResponse {
			found := &workflowservice.ListWorkflowExecutionsResponse{}
			if strings.Contains(r.GetQuery(), "Time") {
				return found // closed and old ones: there are none
			}
			_, prefix, _ := strings.Cut(r.GetQuery(), "STARTS_WITH '")
			prefix, _, _ = strings.Cut(prefix, "'")
			for _, id := range listed {
				if strings.HasPrefix(id, prefix) {
					found.Executions = append(found.Executions,
						&workflow.WorkflowExecutionInfo{Execution: &common.WorkflowExecution{WorkflowId: id}})
				}
			}
			return found
		}, nil)
	temporal.On("DescribeWorkflowExecution", mock.Anything, mock.Anything, "").Return(
		func(_ context.Context, id, _ string) *workflowservice.DescribeWorkflowExecutionResponse {
			if info := existing[id]; info != nil {
				return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: info}
			}
			return nil
		}, func(_ context.Context, id, _ string) error {
			if existing[id] == nil {
				return serviceerror.NewNotFound("deleted")
			}
			return nil
		})
	temporal.On("SignalWorkflow", mock.Anything, mock.Anything, "", mock.Anything, mock.Anything).Return(nil)
	return temporal
}

// sweeperOf makes a sweeper for which each pool has the roster.
func sweeperOf(temporal *mocks.Client, roster ...api.RosterEntry) *Sweeper {
	return &Sweeper{Temporal: temporal, Logger: slog.New(slog.DiscardHandler),
		Status: func(_ context.Context, pool string) (api.PoolStatus, error) {
			return api.PoolStatus{Pool: pool, Size: len(roster), Workers: roster}, nil
		}}
}

// checked checks all pools twice, and returns what was signalled.
func checked(t *testing.T, temporal *mocks.Client, roster ...api.RosterEntry) []mock.Call {
	t.Helper()
	s := newSweep(sweeperOf(temporal, roster...))
	for range 2 {
		require.NoError(t, s.once(t.Context()))
	}
	return slices.DeleteFunc(slices.Clone(temporal.Calls),
		func(c mock.Call) bool { return c.Method != "SignalWorkflow" })
}

// No agent may have heard of a pool whose workers wait for a host that does not come.
func TestASweepTellsOfAPoolWithoutAWorkerThatServes(t *testing.T) {
	listed := []string{api.PoolWorkflowID("p")}
	temporal := answers(listed, map[string]*workflow.WorkflowExecutionInfo{
		listed[0]: {Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING},
	})
	var down []string
	sweeper := sweeperOf(temporal, api.RosterEntry{Slot: 0})
	sweeper.PoolDown = func(pool string) { down = append(down, pool) }
	require.NoError(t, newSweep(sweeper).once(t.Context()))
	require.Equal(t, []string{"p"}, down)

	temporal.On("WorkflowService").Return(stickyQueues{})
	_, err := sweeper.concerned(t.Context(), listed[0], api.EndEpochRequest{Host: "gone"})
	require.NoError(t, err)
	require.Equal(t, []string{"p", "p"}, down, "the end of the host's epoch does not wait for the next sweep")
}

// A rotation with surge leaves a process to drain on the host that is lost; the roster has its successor elsewhere.
func TestTheEndOfAnEpochConcernsAWorkerWhoseProcessDrainsThere(t *testing.T) {
	temporal := &mocks.Client{}
	temporal.On("WorkflowService").Return(stickyQueues{})
	sweeper := sweeperOf(temporal, api.RosterEntry{State: lifecycle.Ready, Host: "b"},
		api.RosterEntry{Slot: 1, State: lifecycle.Ready, Host: "b"})
	last := api.HostHeartbeat{Processes: []api.ProcessReport{{Process: api.Process{Worker: "p/1", Incarnation: 3}}}}
	names, err := sweeper.concerned(t.Context(), api.PoolWorkflowID("p"),
		api.EndEpochRequest{Host: "a", Usage: last.Used()})
	require.NoError(t, err)
	require.Equal(t, []string{"p/1"}, names)
}

// stickyQueues are those of a server that has none.
type stickyQueues struct {
	workflowservice.WorkflowServiceClient
}

func (stickyQueues) ResetStickyTaskQueue(context.Context, *workflowservice.ResetStickyTaskQueueRequest,
	...grpc.CallOption) (*workflowservice.ResetStickyTaskQueueResponse, error) {
	return nil, nil
}

func TestASweepEndsTheWorkersOfPoolsThatAreNotOpenOrDoNotHaveThem(t *testing.T) {
	run := func(status enums.WorkflowExecutionStatus) *workflow.WorkflowExecutionInfo {
		return &workflow.WorkflowExecutionInfo{Status: status}
	}
	listed := []string{api.PoolWorkflowID("p")}
	for slot, pool := range []string{"p", "deleted", "new", "terminated", "deleted", "paused", "p"} {
		listed = append(listed, api.WorkerWorkflowID(pool, slot))
	}
	temporal := answers(listed, map[string]*workflow.WorkflowExecutionInfo{
		api.PoolWorkflowID("p"):          run(enums.WORKFLOW_EXECUTION_STATUS_RUNNING),
		api.PoolWorkflowID("new"):        run(enums.WORKFLOW_EXECUTION_STATUS_RUNNING), // visibility does not list it yet
		api.PoolWorkflowID("terminated"): run(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED),
		api.PoolWorkflowID("paused"):     run(enums.WORKFLOW_EXECUTION_STATUS_PAUSED), // by an operator
	})
	ended := map[string]string{}
	for _, call := range checked(t, temporal, api.RosterEntry{Slot: 0}, api.RosterEntry{Slot: 2}) {
		require.Equal(t, api.SignalEnd, call.Arguments.String(3))
		ended[call.Arguments.String(1)] = call.Arguments.Get(4).(api.Control).Reason
	}
	require.Equal(t, map[string]string{
		api.WorkerWorkflowID("deleted", 1):    "the workflow of pool deleted was deleted",
		api.WorkerWorkflowID("deleted", 4):    "the workflow of pool deleted was deleted",
		api.WorkerWorkflowID("terminated", 3): "the workflow of pool terminated was terminated",
		api.WorkerWorkflowID("p", 6):          "its pool does not have this worker",
	}, ended)
}

func TestASweepReportsWorkersWhoseWorkflowsWereDeleted(t *testing.T) {
	entry := func(slot int) api.RosterEntry { return api.RosterEntry{Slot: slot, RunID: fmt.Sprint("first-", slot)} }
	gone, starting := entry(2), entry(3)
	gone.Gone, starting.RunID = true, ""
	run := func(status enums.WorkflowExecutionStatus, firstRun string) *workflow.WorkflowExecutionInfo {
		return &workflow.WorkflowExecutionInfo{Status: status, FirstRunId: firstRun}
	}
	id := func(slot int) string { return api.WorkerWorkflowID("p", slot) }
	temporal := answers([]string{id(0)}, map[string]*workflow.WorkflowExecutionInfo{
		api.PoolWorkflowID("p"): run(enums.WORKFLOW_EXECUTION_STATUS_RUNNING, ""),
		id(4):                   run(enums.WORKFLOW_EXECUTION_STATUS_RUNNING, "first-4"), // visibility does not list it yet
		id(5):                   run(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, "first-5"),
		// its next workflow is about to start
		id(6): run(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, "another"),
		id(7): run(enums.WORKFLOW_EXECUTION_STATUS_PAUSED, "first-7"),
	})
	var reported []api.WorkerClosed
	for _, call := range checked(t, temporal, entry(0), entry(1), gone, starting, entry(4), entry(5), entry(6),
		entry(7)) {
		require.Equal(t, api.PoolWorkflowID("p"), call.Arguments.String(1))
		require.Equal(t, api.SignalWorkerClosed, call.Arguments.String(3))
		reported = append(reported, call.Arguments.Get(4).(api.WorkerClosed))
	}
	require.Equal(t, []api.WorkerClosed{{Slot: 1, RunID: "first-1", Status: "deleted"},
		{Slot: 5, RunID: "first-5", Status: "terminated"}}, reported,
		"each once, since the second check is not due")
}
