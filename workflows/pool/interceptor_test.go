package pool

import (
	"errors"
	"fmt"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/worker"
)

// prompter stands between the pool and its troupe.
type prompter struct {
	interceptor.WorkerInterceptorBase
	troupe *troupe
}

func (p *prompter) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	in := &inbound{troupe: p.troupe}
	in.Next = next
	return in
}

type inbound struct {
	interceptor.WorkflowInboundInterceptorBase
	troupe *troupe
}

func (i *inbound) Init(out interceptor.WorkflowOutboundInterceptor) error {
	o := &outbound{troupe: i.troupe}
	o.Next = out
	return i.Next.Init(o)
}

type outbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	troupe *troupe
}

// ExecuteChildWorkflow starts an understudy under an ID of its own, so that the environment does not find the worker's and
// answers messages to it by itself.
func (o *outbound) ExecuteChildWorkflow(ctx workflow.Context, _ string, args ...any) workflow.ChildWorkflowFuture {
	run := args[0].(worker.Run)
	options := workflow.GetChildWorkflowOptions(ctx)
	require.Equal(o.troupe.t, api.WorkerWorkflowID(run.Pool, run.Slot), options.WorkflowID)
	require.Equal(o.troupe.t, parentClosePolicy, options.ParentClosePolicy)
	options.ParentClosePolicy = enums.PARENT_CLOSE_POLICY_TERMINATE // the environment would go on until the understudies have ended
	a := o.troupe.hire(run)
	if a == nil {
		options.WorkflowID = fmt.Sprint("refused ", o.troupe.refused)
		return o.Next.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, options), refusedWorkflow, run)
	}
	a.understudy = fmt.Sprint("understudy ", len(o.troupe.hired))
	options.WorkflowID = a.understudy
	return o.Next.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, options), api.WorkflowWorker, run)
}

// enter lets an actor begin when its understudy runs.
func (p *troupe) enter(info *workflow.Info, _ workflow.Context, _ converter.EncodedValues) {
	for _, a := range p.actors {
		if a.understudy == info.WorkflowExecution.ID {
			a.entry.RunID = info.WorkflowExecution.RunID
			a.then(postTakes, a.start)
		}
	}
}

func (o *outbound) SignalExternalWorkflow(ctx workflow.Context, workflowID, _, name string, argument any) workflow.Future {
	return o.post(ctx, workflowID, func(a *actor) { a.signal(name, argument) })
}

func (o *outbound) RequestCancelExternalWorkflow(ctx workflow.Context, workflowID, _ string) workflow.Future {
	return o.post(ctx, workflowID, (*actor).cancel)
}

// signalPool delivers a message if there is somebody to take it, both when it is sent and when it arrives.
func (o *outbound) post(ctx workflow.Context, workflowID string, deliver func(*actor)) workflow.Future {
	future, settable := workflow.NewFuture(ctx)
	known := o.troupe.running(workflowID)
	workflow.Go(ctx, func(ctx workflow.Context) {
		if err := workflow.Sleep(ctx, postTakes); err != nil {
			settable.SetError(err)
			return
		}
		a := o.troupe.running(workflowID)
		if known == nil || a == nil {
			settable.SetError(errors.New("no workflow of that ID is running"))
			return
		}
		deliver(a)
		settable.SetValue(nil)
	})
	return future
}

func (p *troupe) running(workflowID string) *actor {
	for _, a := range p.actors {
		if a.open && a.entry.RunID != "" && api.WorkerWorkflowID(a.run.Pool, a.run.Slot) == workflowID {
			return a
		}
	}
	return nil
}
