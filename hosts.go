package tempool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// JoinHost announces an agent to the workflow of its host, which is started where it does not run. CodeHostTaken means
// that another agent holds the host id; it may be repeated with the same instance.
func (c *Client) JoinHost(ctx context.Context, hostID string,
	request api.JoinRequest) (result api.JoinResult, err error) {
	start := c.temporal.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID: api.HostWorkflowID(hostID), TaskQueue: api.TaskQueue, StaticSummary: "host " + hostID,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, api.WorkflowHost, api.HostStatus{Host: hostID})
	// the agent before, which may have the workflow in its cache, may be dead: Temporal would wait for it
	if request.Epoch == 0 {
		_, _ = c.temporal.WorkflowService().ResetStickyTaskQueue(ctx, &workflowservice.ResetStickyTaskQueueRequest{
			Namespace: c.namespace, Execution: &common.WorkflowExecution{WorkflowId: api.HostWorkflowID(hostID)},
		})
		if last, err := c.HostHeartbeat(ctx, hostID); err == nil { // it counts what an agent that was killed had served
			request.Usage = last.Used()
		}
	}
	handle, err := c.temporal.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateName: api.UpdateJoin, UpdateID: uuid.NewString(), Args: []any{request},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err == nil {
		err = handle.Get(ctx, &result)
	}
	return result, c.fromTemporal(err, "join host "+hostID)
}

// LeaveHost ends an epoch of a host whose agent shuts down. An epoch that has ended is not an error.
func (c *Client) LeaveHost(ctx context.Context, hostID string, request api.LeaveRequest) error {
	return c.update(ctx, api.HostWorkflowID(hostID), api.UpdateLeave, "leave host "+hostID, request, nil)
}

// Moved are workers of a pool that restart, to move to other hosts.
type Moved struct {
	Pool    string `json:"pool"`
	Workers []int  `json:"workers"`
}

// DrainHost has a host take no starts of workers, also by later agents of the host, and restarts its workers, which
// then start on other hosts: at most rotation.max_unavailable of a pool at a time. It returns those workers, by pool,
// without waiting for them, and may be repeated. If the error is not nil, some workers may stay. CodeInvalid means that
// there is no such host, also for UndrainHost.
func (c *Client) DrainHost(ctx context.Context, hostID, reason string) ([]Moved, error) {
	reason = cmp.Or(reason, "no reason was given")
	if err := c.setDraining(ctx, hostID, reason); err != nil {
		return nil, err
	}
	pools, err := c.ListPools(ctx)
	slices.Sort(pools)
	moved, failures := make([]Moved, len(pools)), make([]error, len(pools))
	sleep.Each(len(pools), concurrentQueries, func(i int) {
		r, err := c.Pool(pools[i]).Restart(ctx, api.RestartRequest{Host: hostID,
			Reason: "host " + hostID + " drains: " + reason})
		moved[i] = Moved{pools[i], r.Workers}
		if !errors.Is(err, api.ErrPoolNotFound) && !errors.Is(err, api.ErrDraining) { // else its workers end anyway
			failures[i] = err
		}
	})
	moved = slices.DeleteFunc(moved, func(m Moved) bool { return len(m.Workers) == 0 })
	if err = cmp.Or(err, errors.Join(failures...)); err != nil {
		err = api.Errorf(cmp.Or(api.CodeOf(err), api.CodeUnavailable),
			"host %s takes no new workers, but some of its workers stay: %w", hostID, err)
	}
	return moved, err
}

// UndrainHost has a host take starts of workers again.
func (c *Client) UndrainHost(ctx context.Context, hostID string) error {
	return c.setDraining(ctx, hostID, "")
}

func (c *Client) setDraining(ctx context.Context, hostID, reason string) error {
	err := c.update(ctx, api.HostWorkflowID(hostID), api.UpdateDrainHost, "drain host "+hostID,
		api.DrainHostRequest{Reason: reason}, nil)
	if is[*serviceerror.NotFound](err) {
		return api.Errorf(api.CodeInvalid, "no host %s; tempool hosts lists them", hostID)
	}
	return err
}

// HostStatus returns the state of a host, as its workflow last recorded it.
func (c *Client) HostStatus(ctx context.Context, hostID string) (s api.HostStatus, err error) {
	err = c.query(ctx, api.HostWorkflowID(hostID), api.QueryStatus, &s)
	return s, err
}

// Host is the reported state of one host.
type Host struct {
	ID string `json:"id"`
	// Heartbeat is what its agent last reported, and HeardAt when that was, by Temporal's clock; both are zero while the
	// host has no agent. What Heartbeat points to is shared with other callers: do not change it.
	Heartbeat api.HostHeartbeat `json:"heartbeat"`
	HeardAt   time.Time         `json:"heard_at,omitzero"`
}

// Hosts lists the hosts that have a workflow, whether an agent runs on them or not, sorted by their ids. A host that
// has joined or ended in the last seconds may be wrong. One that cannot be described is without Heartbeat.
func (c *Client) Hosts(ctx context.Context) ([]Host, error) {
	ids, err := c.listWorkflows(ctx, fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", api.WorkflowHost))
	if err != nil {
		return nil, err
	}
	slices.Sort(ids)
	hosts := make([]Host, len(ids))
	failures := make([]error, len(ids))
	sleep.Each(len(ids), concurrentQueries, func(i int) {
		hosts[i].ID = strings.TrimPrefix(ids[i], api.HostWorkflowID(""))
		heartbeat, at, err := c.heartbeat(ctx, hosts[i].ID)
		if err == nil {
			hosts[i].Heartbeat, hosts[i].HeardAt = heartbeat, at
		} else if errors.Is(err, api.ErrInvalid) { // every heartbeat of the namespace is encrypted
			failures[i] = err
		}
	})
	return hosts, cmp.Or(failures...)
}
