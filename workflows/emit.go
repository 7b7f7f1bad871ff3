package workflows

import (
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/emit"
)

// EmitEvents returns an interceptor that passes the events of workflows to their agent. A replay emits none. Events are emitted at least once: a
// workflow task that Temporal did not accept is executed again, here or by another agent.
func EmitEvents(to api.Emit) interceptor.WorkerInterceptor { return &emitting{to: to} }

type emitting struct {
	interceptor.WorkerInterceptorBase
	to api.Emit
}

func (t *emitting) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &emittingRun{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}, to: t.to}
}

type emittingRun struct {
	interceptor.WorkflowInboundInterceptorBase
	to api.Emit
}

func (r *emittingRun) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	return r.Next.ExecuteWorkflow(emit.With(ctx, r.to), in)
}
