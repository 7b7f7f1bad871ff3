package pool

import (
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/sessions"
)

func (p *pool) evacuateRefusal(r api.EvacuateRequest) *api.Error {
	return p.slotRefusal(&r.Worker)
}

// evacuate starts the evacuation of a worker, which goes on by itself, whatever becomes of the pool. A worker has one at a time.
func (p *pool) evacuate(ctx workflow.Context, r api.EvacuateRequest) (api.EvacuateStarted, error) {
	worker := api.WorkerName(p.PoolStart.Pool, r.Worker)
	options := workflow.ChildWorkflowOptions{
		WorkflowID: api.EvacuateWorkerWorkflowID(p.PoolStart.Pool, r.Worker), TaskQueue: api.TaskQueue,
		ParentClosePolicy: enums.PARENT_CLOSE_POLICY_ABANDON, StaticSummary: "evacuate " + worker, StaticDetails: display.Attributed(r.Reason, r.By),
	}
	if p.Searchable {
		options.TypedSearchAttributes = temporal.NewSearchAttributes(display.AttributePool.ValueSet(p.PoolStart.Pool))
	}
	future := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(p.ctx, options), api.WorkflowEvacuateWorker,
		sessions.EvacuateRun{Pool: p.PoolStart.Pool, EvacuateRequest: r})
	var execution workflow.Execution
	err := future.GetChildWorkflowExecution().Get(ctx, &execution)
	switch {
	case temporal.IsWorkflowExecutionAlreadyStartedError(err):
		return api.EvacuateStarted{}, failure.Refusal(api.Errorf(api.CodeBusy, "%s is being evacuated already; wait for that, or cancel the workflow %s", worker, options.WorkflowID))
	case err != nil:
		return api.EvacuateStarted{}, failure.Refusal(api.Errorf(api.CodeUnavailable, "the evacuation of %s could not be started: %v", worker, err))
	}
	return api.EvacuateStarted{WorkflowID: execution.ID, RunID: execution.RunID}, nil
}

func (p *pool) drainRefusal(c api.Control) *api.Error {
	if c.Worker == nil {
		return api.Errorf(api.CodeInvalid, "drain needs the number of a worker")
	}
	return p.slotRefusal(c.Worker)
}

func (p *pool) drain(ctx workflow.Context, c api.Control) (api.CheckinResult, error) {
	if err := p.awaitRunning(ctx, *c.Worker); err != nil {
		return api.CheckinResult{}, err
	}
	s := p.slot(*c.Worker)
	err := workflow.SignalExternalWorkflow(p.ctx, api.WorkerWorkflowID(p.PoolStart.Pool, *c.Worker), "",
		api.SignalDrain, api.Control{Reason: c.Reason, By: c.By}).Get(ctx, nil)
	if err != nil || s == nil {
		return api.CheckinResult{}, failure.Refusal(api.Errorf(api.CodeWorkerNotFound, "worker %d could not be told: %v", *c.Worker, err))
	}
	return api.CheckinResult{State: s.State}, nil
}
