package tempool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/google/uuid"

	"github.com/tempool/tempool/api"
)

const (
	// queryTimeout is the default of Options.QueryTimeout; without an agent nothing answers.
	queryTimeout = 10 * time.Second
	// queryFirstTimeout bounds the first attempt. The server now and then loses an answer: that of an agent that leaves,
	// and, once in a thousand or so, one that arrives before the server has recorded the waiter. Views have a second; a
	// server far away takes two round trips.
	queryFirstTimeout = time.Second / 2
)

// errNotSent is wrapped by the error of an update that timed out behind other requests of this client.
var errNotSent = errors.New("too many requests of this client are in flight")

// update sends an update of a workflow and waits for its result, which it reads into result; action is for errors. Its
// ID is a new one each time: for a known one Temporal would repeat the answer, whatever has become of a lease.
func (c *Client) update(ctx context.Context, workflowID, name, action string, argument, result any) error {
	release, err := c.updates.Acquire(ctx, workflowID)
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "%s: %w: %w", action, errNotSent, err)
	}
	defer release()
	handle, err := c.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: workflowID, UpdateName: name, UpdateID: uuid.NewString(), Args: []any{argument},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, result)
	}
	if _, unanswered := errors.AsType[*client.WorkflowUpdateServiceTimeoutOrCanceledError](err); unanswered &&
		!isTimeout(err) && !errors.Is(ctx.Err(), context.Canceled) {
		// at the deadline, the server may end the request as cancelled
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return c.fromTemporal(err, action)
}

// updateOfLease is update for the worker of a lease.
func (c *Client) updateOfLease(ctx context.Context, leaseID, name, action string, argument, result any) error {
	ref, err := api.ParseLeaseID(leaseID)
	if err != nil {
		return err
	}
	return c.update(ctx, api.WorkerWorkflowID(ref.Pool, ref.Slot), name, action+" "+leaseID, argument, result)
}

// query queries a workflow, open or closed.
func (c *Client) query(ctx context.Context, workflowID, name string, result any) error {
	_, err := c.queryUnless(ctx, workflowID, name, enums.QUERY_REJECT_CONDITION_NONE, result)
	return err
}

// queryUnless queries a workflow unless it is in the condition to reject; rejected is not an error. Each further
// attempt waits twice as long as the one before, since its answer may be slow, not lost. Temporal may give it to
// another agent, which can run what an older one cannot.
func (c *Client) queryUnless(ctx context.Context, workflowID, name string, reject enums.QueryRejectCondition,
	result any) (rejected bool, err error) {
	limit := cmp.Or(c.queryTimeout, queryTimeout)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request := &client.QueryWorkflowWithOptionsRequest{WorkflowID: workflowID, QueryType: name,
		QueryRejectCondition: reject}
	timeout := queryFirstTimeout
	answer, err := c.queryOnce(ctx, request, timeout)
	for (isTimeout(err) || is[*serviceerror.Canceled](err) || is[*serviceerror.QueryFailed](err)) && ctx.Err() == nil &&
		timeout < limit { // at the deadline of an attempt, the server may end it as cancelled
		timeout *= 2
		answer, err = c.queryOnce(ctx, request, timeout)
	}
	if err == nil && answer.QueryRejected != nil {
		return true, nil
	}
	if err == nil {
		err = answer.QueryResult.Get(result)
	}
	return false, c.fromTemporal(err, "query "+name+" of "+workflowID)
}

// queryOnce waits for timeout. The SDK gives a request half of the time left in its context, at least a second, so the
// context lasts twice as long; a shorter timeout is that of the context.
func (c *Client) queryOnce(ctx context.Context, request *client.QueryWorkflowWithOptionsRequest,
	timeout time.Duration) (*client.QueryWorkflowWithOptionsResponse, error) {
	if timeout >= time.Second {
		timeout *= 2
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.temporal.QueryWorkflowWithOptions(ctx, request)
}

// listWorkflows returns the ID of every workflow that matches a visibility query.
func (c *Client) listWorkflows(ctx context.Context, query string) ([]string, error) {
	var ids []string
	var page []byte
	for {
		answer, err := c.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: c.namespace, Query: query, NextPageToken: page,
		})
		if err != nil {
			return ids, c.fromTemporal(err, "list workflows")
		}
		for _, execution := range answer.GetExecutions() {
			ids = append(ids, execution.GetExecution().GetWorkflowId())
		}
		if page = answer.GetNextPageToken(); len(page) == 0 {
			return ids, nil
		}
	}
}
