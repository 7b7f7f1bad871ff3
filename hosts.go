package tempool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
)

// JoinHost announces an agent to the workflow of its host, which is started where it does not run. CodeHostTaken means that another agent
// holds the host id; it may be repeated with the same instance.
func (c *Client) JoinHost(ctx context.Context, hostID string, request api.JoinRequest) (result api.JoinResult, err error) {
	start := c.temporal.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID: api.HostWorkflowID(hostID), TaskQueue: api.TaskQueue, StaticSummary: "host " + hostID,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, api.WorkflowHost, api.HostStatus{Host: hostID})
	if request.Epoch == 0 { // the agent before, which may have the workflow in its cache, may be dead: Temporal would wait for it
		_, _ = c.temporal.WorkflowService().ResetStickyTaskQueue(ctx, &workflowservice.ResetStickyTaskQueueRequest{
			Namespace: c.namespace, Execution: &common.WorkflowExecution{WorkflowId: api.HostWorkflowID(hostID)},
		})
	}
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
func (c *Client) LeaveHost(ctx context.Context, hostID string, request api.LeaveRequest) error {
	return c.update(ctx, workflowUpdate{
		workflowID: api.HostWorkflowID(hostID), name: api.UpdateLeave, updateID: uuid.NewString(),
		argument: request, action: "leave host " + hostID,
	}, nil)
}

// HostStatus returns the state of a host, as its workflow last recorded it.
func (c *Client) HostStatus(ctx context.Context, hostID string) (s api.HostStatus, err error) {
	err = c.query(ctx, api.HostWorkflowID(hostID), api.QueryStatus, &s)
	return s, err
}

// Host is what is known of one host.
type Host struct {
	ID string `json:"id"`
	// Vitals are what its agent last reported, and HeardAt when that was, by Temporal's clock; both are zero while the host has no agent.
	Vitals  api.HostVitals `json:"vitals"`
	HeardAt time.Time      `json:"heard_at,omitzero"`
}

// Hosts lists the hosts that have a workflow, whether an agent runs on them or not, sorted by their ids. A host that has joined or ended in the
// last seconds may be wrong. One that cannot be described is without Vitals.
func (c *Client) Hosts(ctx context.Context) ([]Host, error) {
	ids, err := c.listWorkflows(ctx, fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", api.WorkflowHost))
	if err != nil {
		return nil, err
	}
	slices.Sort(ids)
	hosts := make([]Host, len(ids))
	var group errgroup.Group
	group.SetLimit(concurrentQueries)
	for i, id := range ids {
		hosts[i].ID = strings.TrimPrefix(id, api.HostWorkflowID(""))
		group.Go(func() error {
			vitals, at, err := c.heartbeat(ctx, hosts[i].ID)
			if errors.Is(err, api.ErrInvalid) {
				return err // every heartbeat of the namespace is encrypted
			}
			if err == nil {
				hosts[i].Vitals, hosts[i].HeardAt = vitals, at
			}
			return nil
		})
	}
	return hosts, group.Wait()
}

// HostVitals is what the agent of a host last reported of its ready processes; nothing if the host has no agent.
func (c *Client) HostVitals(ctx context.Context, hostID string) (api.HostVitals, error) {
	vitals, _, err := c.heartbeat(ctx, hostID)
	return vitals, err
}

// heartbeat returns the newest heartbeat of a host, and when Temporal got it.
func (c *Client) heartbeat(ctx context.Context, hostID string) (v api.HostVitals, at time.Time, err error) {
	description, err := c.temporal.DescribeWorkflowExecution(ctx, api.HostWorkflowID(hostID), "")
	if err != nil {
		return v, at, c.fromTemporal(err, "describe host "+hostID)
	}
	for _, activity := range description.GetPendingActivities() {
		if activity.GetActivityType().GetName() != api.ActivityHostLiveness || activity.GetHeartbeatDetails() == nil {
			continue
		}
		if err := c.converter.FromPayloads(activity.GetHeartbeatDetails(), &v); err != nil {
			return v, at, c.fromTemporal(err, "read the heartbeat of host "+hostID)
		}
		at = activity.GetLastHeartbeatTime().AsTime()
	}
	return v, at, nil
}

// vitalsOf is what the hosts of workers last reported of them, by worker. A host that cannot be described reports nothing.
func (c *Client) vitalsOf(ctx context.Context, workers []api.RosterEntry) map[string]api.ProcessVitals {
	var hosts []string
	for _, w := range workers {
		if w.Host != "" && !slices.Contains(hosts, w.Host) {
			hosts = append(hosts, w.Host)
		}
	}
	reported := make([]api.HostVitals, len(hosts))
	var group errgroup.Group
	group.SetLimit(concurrentQueries)
	for i, host := range hosts {
		group.Go(func() (err error) {
			reported[i], err = c.HostVitals(ctx, host)
			return err
		})
	}
	_ = group.Wait() // figures that are missing are as of the last checkpoint
	vitals := map[string]api.ProcessVitals{}
	for _, host := range reported {
		for _, v := range host.Processes {
			vitals[v.Worker] = v
		}
	}
	return vitals
}
