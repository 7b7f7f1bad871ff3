package sweeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"

	"github.com/tempool/tempool/api"
)

// openWorkers are the IDs of the open workflows of a pool's workers.
func (s *Sweeper) openWorkers(ctx context.Context, pool string) ([]string, error) {
	return s.ids(ctx, "WorkflowType = '%s' AND WorkflowId STARTS_WITH '%s/' AND ExecutionStatus = 'Running'",
		api.WorkflowWorker, pool)
}

// ids are the IDs of the workflows that a visibility query names.
func (s *Sweeper) ids(ctx context.Context, query string, args ...any) (ids []string, err error) {
	err = s.each(ctx, fmt.Sprintf(query, args...), func(found *workflow.WorkflowExecutionInfo) error {
		ids = append(ids, found.GetExecution().GetWorkflowId())
		return nil
	})
	return ids, err
}

// reportDown calls PoolDown for a pool of which no worker serves: perhaps none of its hosts is left to report it.
func (s *Sweeper) reportDown(status api.PoolStatus) {
	if s.PoolDown != nil && status.Ready == 0 && status.Size > 0 {
		s.PoolDown(status.Pool)
	}
}

// newest describes the newest run of a workflow; nil is one that Temporal no longer has.
func (s *Sweeper) newest(ctx context.Context, id string) (*workflow.WorkflowExecutionInfo, error) {
	description, err := s.Temporal.DescribeWorkflowExecution(ctx, id, "")
	return description.GetWorkflowExecutionInfo(), ignoreNotFound(err)
}

// signal signals a workflow; one that has ended is not an error.
func (s *Sweeper) signal(ctx context.Context, id, name string, argument any) error {
	return ignoreNotFound(s.Temporal.SignalWorkflow(ctx, id, "", name, argument))
}

// ignoreNotFound is err, but nil if what was asked for has ended.
func ignoreNotFound(err error) error {
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return nil
	}
	return err
}

// each calls found with every workflow that the visibility query names.
func (s *Sweeper) each(ctx context.Context, query string, found func(*workflow.WorkflowExecutionInfo) error) error {
	var page []byte
	for {
		heartbeat(ctx) // what came before it may have taken long, such as a pool that did not answer
		answer, err := s.Temporal.ListWorkflow(ctx,
			&workflowservice.ListWorkflowExecutionsRequest{Namespace: s.Namespace, Query: query, NextPageToken: page})
		if err != nil {
			return err
		}
		for _, execution := range answer.GetExecutions() {
			heartbeat(ctx)
			if err := found(execution); err != nil {
				return err
			}
		}
		if page = answer.GetNextPageToken(); len(page) == 0 {
			return nil
		}
	}
}

// heartbeat says that this agent still works at the activity. The SDK sends later heartbeats with the context of an
// earlier one, and cancels the activity if that has ended, such as with the request that it was for.
func heartbeat(ctx context.Context) {
	if activity.IsActivity(ctx) {
		activity.RecordHeartbeat(context.WithoutCancel(ctx))
	}
}

// poolOf is the pool of the workflow of a pool or a worker; "" for another one.
func poolOf(id string) string {
	if pool, _, isWorker := workerOf(id); isWorker {
		return pool
	}
	if name, found := strings.CutPrefix(id, api.PoolWorkflowID("")); found && api.ValidPoolName(name) {
		return name
	}
	return ""
}

// workerOf reads the ID of a worker's workflow.
func workerOf(id string) (pool string, slot int, ok bool) {
	pool, slot, err := api.ParseWorkerName(strings.TrimPrefix(id, api.PoolWorkflowID("")))
	return pool, slot, err == nil
}

// IsOpen reports whether a workflow is open whose newest run has that status. A paused workflow is open: it continues
// later.
func IsOpen(status enums.WorkflowExecutionStatus) bool {
	switch status {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING, enums.WORKFLOW_EXECUTION_STATUS_PAUSED,
		enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		return true
	}
	return false
}

// statusWord is what became of a workflow by its newest run; that of one that Temporal no longer has is unspecified.
func statusWord(status enums.WorkflowExecutionStatus) string {
	switch status {
	case enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED:
		return "deleted"
	case enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return "timed out"
	case enums.WORKFLOW_EXECUTION_STATUS_CANCELED:
		return "cancelled"
	}
	return strings.ToLower(status.String())
}
