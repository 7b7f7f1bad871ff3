package workflows

import (
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

func (p *pool) evacuateRefusal(r api.EvacuateRequest) *api.Error {
	return p.slotRefusal(&r.Worker)
}

// evacuate starts the evacuation of a worker, which goes on by itself, whatever becomes of the pool. A worker has one at a time.
func (p *pool) evacuate(ctx workflow.Context, r api.EvacuateRequest) (api.EvacuateStarted, error) {
	worker := api.WorkerName(p.PoolStart.Pool, r.Worker)
	options := workflow.ChildWorkflowOptions{
		WorkflowID: api.EvacuateWorkerWorkflowID(p.PoolStart.Pool, r.Worker), TaskQueue: api.TaskQueue,
		ParentClosePolicy: enums.PARENT_CLOSE_POLICY_ABANDON, StaticSummary: "evacuate " + worker, StaticDetails: Attributed(r.Reason, r.By),
	}
	if p.Searchable {
		options.TypedSearchAttributes = temporal.NewSearchAttributes(AttributePool.ValueSet(p.PoolStart.Pool))
	}
	future := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(p.ctx, options), api.WorkflowEvacuateWorker,
		EvacuateRun{Pool: p.PoolStart.Pool, EvacuateRequest: r})
	var execution workflow.Execution
	err := future.GetChildWorkflowExecution().Get(ctx, &execution)
	switch {
	case temporal.IsWorkflowExecutionAlreadyStartedError(err):
		return api.EvacuateStarted{}, Refusal(api.Errorf(api.CodeBusy, "%s is being evacuated already; wait for that, or cancel the workflow %s", worker, options.WorkflowID))
	case err != nil:
		return api.EvacuateStarted{}, Refusal(api.Errorf(api.CodeUnavailable, "the evacuation of %s could not be started: %v", worker, err))
	}
	return api.EvacuateStarted{WorkflowID: execution.ID, RunID: execution.RunID}, nil
}
