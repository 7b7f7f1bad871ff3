package tempool

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/query/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// closedWorkflows is a Temporal client whose workflows have all been terminated. It answers queries with the last
// state.
type closedWorkflows struct {
	client.Client
	answers map[string]any // by query
}

func (c *closedWorkflows) QueryWorkflowWithOptions(_ context.Context,
	r *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	if r.QueryRejectCondition == enums.QUERY_REJECT_CONDITION_NOT_OPEN {
		return &client.QueryWorkflowWithOptionsResponse{
			QueryRejected: &query.QueryRejected{Status: enums.WORKFLOW_EXECUTION_STATUS_TERMINATED},
		}, nil
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(c.answers[r.QueryType])
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: client.NewValue(payloads)}, err
}

func (c *closedWorkflows) DescribeWorkflowExecution(context.Context, string,
	string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{}, nil
}

func (c *closedWorkflows) GetWorkflow(context.Context, string, string) client.WorkflowRun {
	return closedRun{}
}

type closedRun struct{ client.WorkflowRun }

func (closedRun) Get(context.Context, any) error {
	return fmt.Errorf("terminated: %w", &temporal.WorkflowExecutionError{})
}

func TestAWorkflowThatHasEndedIsNeverShownAsReady(t *testing.T) {
	c := &Client{temporal: &closedWorkflows{answers: map[string]any{
		api.QueryStatus: api.PoolStatus{Pool: "t", Size: 1, Ready: 1,
			Workers: []api.RosterEntry{{State: lifecycle.Ready, PID: 7}}},
		api.QueryState:   api.WorkerState{Worker: "t/0", State: lifecycle.Busy, PID: 7, Lease: &api.Lease{ID: "t.0.1.1"}},
		api.QueryMetrics: api.WorkerMetrics{},
	}}}
	pool := c.Pool("t")
	state, err := pool.State(t.Context(), 0)
	require.NoError(t, err)
	require.True(t, state.Ended)
	require.Equal(t, lifecycle.Failed, state.State)
	require.Nil(t, state.Lease, "a gateway must not take the lease for valid")
	require.Contains(t, state.Reason, "while it was busy")

	status, err := pool.Status(t.Context())
	require.NoError(t, err)
	require.True(t, status.Ended)
	require.Zero(t, status.Ready)
	require.Equal(t, lifecycle.Stopped, status.Workers[0].State)

	view, err := pool.Workers(t.Context())
	require.NoError(t, err)
	require.Zero(t, view.Ready)
	require.Equal(t, lifecycle.Failed, view.Workers[0].State)
	require.Equal(t, status, view.Status)
	require.Equal(t, status.Workers[0], view.Workers[0].Entry, "its answer does not replace what its pool heard")
	_, err = pool.Running(t.Context())
	require.ErrorIs(t, err, api.ErrPoolNotFound)
	require.NoError(t, pool.Wait(t.Context()), "a terminated pool has stopped, too")
}
