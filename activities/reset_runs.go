package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
)

// A reset leaves the activities that no agent had taken scheduled, and Temporal 1.29 forgets their schedule-to-start
// timeouts, and with them the timeouts of every later activity of the run. Such an activity on the queue of an agent
// that has ended would keep its workflow waiting for ever.

// restoreTimeouts has Temporal measure the timeouts of the activities of a run that no agent has taken. It changes
// nothing if it does already.
func (s *Sweeper) restoreTimeouts(ctx context.Context,
	description *workflowservice.DescribeWorkflowExecutionResponse) error {
	run := description.GetWorkflowExecutionInfo().GetExecution()
	for _, pending := range description.GetPendingActivities() {
		if pending.GetState() != enums.PENDING_ACTIVITY_STATE_SCHEDULED {
			continue
		}
		_, err := s.Temporal.WorkflowService().UpdateActivityOptions(ctx, &workflowservice.UpdateActivityOptionsRequest{
			Namespace: s.Namespace, Execution: run, RestoreOriginal: true,
			Activity: &workflowservice.UpdateActivityOptionsRequest_Id{Id: pending.GetActivityId()},
		})
		if _, unknown := errors.AsType[*serviceerror.Unimplemented](err); unknown {
			s.Logger.Warn("this Temporal server cannot restore the timeouts of activities after a reset",
				"workflow", run.GetWorkflowId(), "error", err)
			return nil
		}
		if err := ignoreNotFound(err); err != nil {
			return fmt.Errorf("restore the timeouts of activity %s: %w", pending.GetActivityType().GetName(), err)
		}
	}
	return nil
}

// ignoreNotFound is err, but nil if what was asked for has ended.
func ignoreNotFound(err error) error {
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return nil
	}
	return err
}
