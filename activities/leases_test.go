package activities

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

// leaseTemporal answers heartbeats and says how the workflow of a lease is.
type leaseTemporal struct {
	heartbeat func() error
	status    enums.WorkflowExecutionStatus
}

func (c leaseTemporal) RecordActivityHeartbeat(context.Context, []byte, ...any) error {
	return c.heartbeat()
}

func (c leaseTemporal) DescribeWorkflowExecution(context.Context, string,
	string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: c.status}}, nil
}

func TestAHeldLeaseIsRenewedUntilItsWorkflowEnds(t *testing.T) {
	lease := api.Lease{ID: "p/0/1/1", TTLMS: 40}
	for name, c := range map[string]struct {
		after    func() error // answers heartbeats once the lease was renewed twice
		status   enums.WorkflowExecutionStatus
		notInUse bool
		renewal  *api.Error // of the third time
		returned bool
		code     api.Code
	}{
		"the workflow cancels the activity": {after: func() error { return temporal.NewCanceledError() }},
		"the workflow is closed": {after: func() error { return serviceerror.NewNotFound("gone") },
			status: enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, returned: true},
		"the workflow is closed, and has returned the lease": {
			after: func() error { return serviceerror.NewNotFound("gone") }, notInUse: true,
			status: enums.WORKFLOW_EXECUTION_STATUS_COMPLETED},
		"another attempt has it": {after: func() error { return serviceerror.NewNotFound("gone") },
			status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING},
		"the lease is lost": {after: func() error { return nil }, renewal: api.Errorf(api.CodeLeaseFenced, "lost"),
			code: api.CodeLeaseFenced},
	} {
		t.Run(name, func(t *testing.T) {
			renewals := 0
			var returned []api.CheckinRequest
			leases := &Leases{
				Clients: leaseTemporal{status: c.status, heartbeat: func() error {
					if renewals < 2 {
						return serviceerror.NewUnavailable("away") // which ends nothing
					}
					return c.after()
				}},
				Renew: func(context.Context, string) error {
					if renewals++; renewals > 2 && c.renewal != nil {
						return c.renewal
					}
					return nil
				},
				Return: func(_ context.Context, r api.CheckinRequest) error {
					returned = append(returned, r)
					return nil
				},
				InUse: func(api.Lease) bool { return !c.notInUse },
			}
			began := time.Now()
			err := RunActivity(leases.HoldLease, lease, nil)
			require.GreaterOrEqual(t, renewals, 2)
			if !c.notInUse {
				require.Greater(t, time.Since(began), lease.TTL()/2, "a lease that counts is renewed after half of its time")
			}
			if c.returned {
				require.Len(t, returned, 1)
				require.Equal(t, api.OutcomeClose, returned[0].Outcome)
			} else {
				require.Empty(t, returned)
			}
			if c.code != "" {
				RequireNonRetryable(t, err, c.code)
			}
		})
	}
}

// TestAHolderIsCutBetweenCharacters: JSON would make the rest of a character longer than it was, and than allowed.
func TestAHolderIsCutBetweenCharacters(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: strings.Repeat("a", api.MaxHolderBytes-1) + "é"})
	holder := ""
	pool := Pool{Lease: func(_ context.Context, r api.CheckoutRequest) (*api.Lease, error) {
		holder = r.Holder
		return &api.Lease{}, nil
	}}
	env.RegisterActivityWithOptions(pool.Checkout, activity.RegisterOptions{Name: "checkout"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		return workflow.ExecuteActivity(ctx, "checkout").Get(ctx, nil)
	})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, strings.Repeat("a", api.MaxHolderBytes-1), holder)
}
