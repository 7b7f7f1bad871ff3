package activities

import (
	"context"
	"fmt"
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

	"github.com/tempool/tempool/api"
)

// answers makes a client to which these workflows exist, of which visibility lists those in listed. Pool p has the
// roster.
func answers(roster []api.RosterEntry, listed []string,
	existing map[string]*workflow.WorkflowExecutionInfo) *mocks.Client {
	temporal := &mocks.Client{}
	list := func(ids ...string) *workflowservice.ListWorkflowExecutionsResponse {
		found := &workflowservice.ListWorkflowExecutionsResponse{}
		for _, id := range ids {
			found.Executions = append(found.Executions,
				&workflow.WorkflowExecutionInfo{Execution: &common.WorkflowExecution{WorkflowId: id}})
		}
		return found
	}
	of := func(workflowType string) any {
		return mock.MatchedBy(func(r *workflowservice.ListWorkflowExecutionsRequest) bool {
			return strings.Contains(r.GetQuery(), "WorkflowType = '"+workflowType+"'")
		})
	}
	temporal.On("ListWorkflow", mock.Anything, of(api.WorkflowPool)).Return(list(api.PoolWorkflowID("p")), nil)
	temporal.On("ListWorkflow", mock.Anything, of(api.WorkflowWorker)).Return(list(listed...), nil)
	status, err := converter.GetDefaultDataConverter().ToPayloads(api.PoolStatus{Pool: "p", Workers: roster})
	if err != nil {
		panic(err)
	}
	temporal.On("QueryWorkflow", mock.Anything, api.PoolWorkflowID("p"), "", api.QueryStatus).Return(encoded{status}, nil)
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

// encoded is the answer to a query.
type encoded struct{ payloads *common.Payloads }

func (e encoded) HasValue() bool { return true }
func (e encoded) Get(into any) error {
	return converter.GetDefaultDataConverter().FromPayloads(e.payloads, into)
}

func TestASweepEndsTheWorkersOfPoolsThatAreNotOpen(t *testing.T) {
	run := func(status enums.WorkflowExecutionStatus) *workflow.WorkflowExecutionInfo {
		return &workflow.WorkflowExecutionInfo{Status: status}
	}
	var listed []string
	for _, pool := range []string{"p", "deleted", "new", "terminated", "deleted", "paused", "continues"} {
		listed = append(listed, api.WorkerWorkflowID(pool, len(listed)))
	}
	temporal := answers(nil, listed, map[string]*workflow.WorkflowExecutionInfo{
		api.PoolWorkflowID("new"):        run(enums.WORKFLOW_EXECUTION_STATUS_RUNNING), // visibility does not list it yet
		api.PoolWorkflowID("terminated"): run(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED),
		api.PoolWorkflowID("paused"):     run(enums.WORKFLOW_EXECUTION_STATUS_PAUSED), // by an operator
		api.PoolWorkflowID("continues"):  run(enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW),
	})
	s := sweep{Sweeper: &Sweeper{Temporal: temporal, Logger: slog.New(slog.DiscardHandler)},
		progress: api.SweepProgress{After: time.Now()}}
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivity(s.reportMissing)
	_, err := env.ExecuteActivity(s.reportMissing)
	require.NoError(t, err)
	ended := map[string]string{}
	for _, call := range temporal.Calls {
		if call.Method == "SignalWorkflow" {
			require.Equal(t, api.SignalEnd, call.Arguments.String(3))
			ended[call.Arguments.String(1)] = call.Arguments.Get(4).(api.Control).Reason
		}
	}
	require.Equal(t, map[string]string{
		api.WorkerWorkflowID("deleted", 1):    "the workflow of pool deleted was deleted",
		api.WorkerWorkflowID("deleted", 4):    "the workflow of pool deleted was deleted",
		api.WorkerWorkflowID("terminated", 3): "the workflow of pool terminated was terminated",
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
	temporal := answers([]api.RosterEntry{entry(0), entry(1), gone, starting, entry(4), entry(5), entry(6), entry(7)},
		[]string{id(0)}, map[string]*workflow.WorkflowExecutionInfo{
			id(4): run(enums.WORKFLOW_EXECUTION_STATUS_RUNNING, "first-4"), // visibility does not list it yet
			id(5): run(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, "first-5"),
			id(6): run(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, "another"), // its next workflow is about to start
			id(7): run(enums.WORKFLOW_EXECUTION_STATUS_PAUSED, "first-7"),
		})
	s := sweep{Sweeper: &Sweeper{Temporal: temporal, Logger: slog.New(slog.DiscardHandler)},
		progress: api.SweepProgress{After: time.Now()}}
	runTwice(t, s.reportMissing, func(_ *activity.Info, details converter.EncodedValues) {
		if !details.HasValues() {
			t.Error("a heartbeat without the progress takes it from the next attempt")
		}
	})
	var reported []api.WorkerClosed
	for _, call := range temporal.Calls {
		if call.Method == "SignalWorkflow" {
			require.Equal(t, api.PoolWorkflowID("p"), call.Arguments.String(1))
			require.Equal(t, api.SignalWorkerClosed, call.Arguments.String(3))
			reported = append(reported, call.Arguments.Get(4).(api.WorkerClosed))
		}
	}
	require.Equal(t, []api.WorkerClosed{{Slot: 1, RunID: "first-1", Status: "deleted"},
		{Slot: 5, RunID: "first-5", Status: "terminated"}}, reported,
		"each once, since the second check is not due")
}
