package workflows

import (
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

// OnExecute restricts an interceptor to the workflow Execute and to activities: the other workflows run for months, and
// nothing that is not theirs may touch their histories.
func OnExecute(i interceptor.WorkerInterceptor) interceptor.WorkerInterceptor { return onExecute{i} }

type onExecute struct{ interceptor.WorkerInterceptor }

func (o onExecute) InterceptWorkflow(ctx workflow.Context,
	next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	if workflow.GetInfo(ctx).WorkflowType.Name != api.WorkflowExecute {
		return next
	}
	return o.WorkerInterceptor.InterceptWorkflow(ctx, next)
}
