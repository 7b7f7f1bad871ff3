package pool

import (
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/sessions"
)

func (p *pool) drainRefusal(c api.Control) *api.Error {
	if c.Worker == nil {
		return api.Errorf(api.CodeInvalid, "worker is required: set the number of the worker to drain")
	}
	return p.slotRefusal(c.Worker)
}

// drain drains and stops one worker, which then rests. The result is the worker's state when it has the order.
func (p *pool) drain(ctx workflow.Context, c api.Control) (api.CheckinResult, error) {
	var run string
	err := p.order(ctx, *c.Worker, func() {
		run = p.slot(*c.Worker).RunID
		p.slot(*c.Worker).Order = &pendingOrder{Kind: api.SignalDrain, Reason: c.Reason, By: c.By}
	})
	if err != nil {
		return api.CheckinResult{}, err
	}
	s := p.slot(*c.Worker)
	if s == nil || s.Gone || s.RunID != run {
		return api.CheckinResult{}, failure.Refusal(api.Errorf(api.CodeWorkerNotFound,
			"worker %d has ended in the meantime", *c.Worker))
	}
	return api.CheckinResult{State: s.State}, nil
}

// evacuationEnds is how much later than its callers the pool may learn of the end of an evacuation.
const evacuationEnds = 2 * time.Second

// evacuate starts the evacuation of a worker, whose workflow is independent of the pool's. A worker has at most one at
// a time.
func (p *pool) evacuate(ctx workflow.Context, r api.EvacuateRequest) (api.EvacuateStarted, error) {
	worker := p.worker(r.Worker)
	options := workflow.ChildWorkflowOptions{
		WorkflowID: api.EvacuateWorkerWorkflowID(p.name(), r.Worker), TaskQueue: api.TaskQueue,
		ParentClosePolicy: enums.PARENT_CLOSE_POLICY_ABANDON, StaticSummary: "evacuate " + worker,
		StaticDetails: display.Attributed(r.Reason, r.By),
	}
	if p.Searchable {
		options.TypedSearchAttributes = temporal.NewSearchAttributes(display.AttributePool.ValueSet(p.name()))
	}
	// until it learns of that end, the SDK refuses a child of the same ID
	if before := p.evacuations[r.Worker]; before != nil && !before.IsReady() {
		if _, err := workflow.AwaitWithTimeout(ctx, evacuationEnds, before.IsReady); err != nil {
			return api.EvacuateStarted{}, err
		}
	}
	future := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(p.Ctx, options), api.WorkflowEvacuateWorker,
		sessions.EvacuateRun{Pool: p.name(), EvacuateRequest: r})
	var execution workflow.Execution
	err := future.GetChildWorkflowExecution().Get(ctx, &execution)
	switch {
	case temporal.IsWorkflowExecutionAlreadyStartedError(err):
		return api.EvacuateStarted{}, failure.Refusal(api.Errorf(api.CodeBusy,
			"%s is already being evacuated; wait for that, or cancel the workflow %s", worker, options.WorkflowID))
	case err != nil:
		return api.EvacuateStarted{}, failure.Refusal(api.Errorf(api.CodeUnavailable,
			"evacuation of %s could not be started: %v", worker, err))
	}
	p.evacuations[r.Worker] = future
	return api.EvacuateStarted{WorkflowID: execution.ID, RunID: execution.RunID}, nil
}
