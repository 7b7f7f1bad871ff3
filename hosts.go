package tempool

import (
	"context"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
)

// JoinHost announces an agent to the workflow of its host, which is started where it does not run. CodeHostTaken means that another agent
// holds the host id; it may be repeated with the same instance.
func (c *Client) JoinHost(ctx context.Context, hostID string, request api.JoinRequest) (result api.JoinResult, err error) {
	start := c.temporal.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID: api.HostWorkflowID(hostID), TaskQueue: api.TaskQueue, StaticSummary: "host " + hostID,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, api.WorkflowHost, api.HostStatus{Host: hostID})
	handle, err := c.temporal.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateName: api.UpdateJoin, UpdateID: uuid.NewString(), Args: []any{request}, WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err == nil {
		err = handle.Get(ctx, &result)
	}
	return result, c.fromTemporal(err, "join host "+hostID)
}

// LeaveHost ends an epoch of a host whose agent shuts down. An epoch that has ended is no error.
func (c *Client) LeaveHost(ctx context.Context, hostID string, epoch int64) error {
	return c.update(ctx, workflowUpdate{
		workflowID: api.HostWorkflowID(hostID), name: api.UpdateLeave, updateID: uuid.NewString(),
		argument: api.LeaveRequest{Epoch: epoch}, action: "leave host " + hostID,
	}, nil)
}

// HostStatus returns the state of a host, as its workflow last recorded it.
func (c *Client) HostStatus(ctx context.Context, hostID string) (s api.HostStatus, err error) {
	err = c.query(ctx, api.HostWorkflowID(hostID), api.QueryStatus, &s)
	return s, err
}
