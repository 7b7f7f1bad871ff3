package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/worker"
)

// outbound redirects what a pool does to its workers to a fakePool.
type outbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	fakePool *fakePool
}

// ExecuteChildWorkflow starts a stub child under an ID of its own, so that the environment does not find the worker's
// and answers messages to it.
func (o *outbound) ExecuteChildWorkflow(ctx workflow.Context, name string, args ...any) workflow.ChildWorkflowFuture {
	run, ofWorker := args[0].(worker.Run)
	if !ofWorker {
		return o.Next.ExecuteChildWorkflow(ctx, name, args...)
	}
	options := workflow.GetChildWorkflowOptions(ctx)
	require.Equal(o.fakePool.t, api.WorkerWorkflowID(run.Pool, run.Slot), options.WorkflowID)
	require.Equal(o.fakePool.t, parentClosePolicy, options.ParentClosePolicy)
	// the environment would continue until the stubs have ended
	options.ParentClosePolicy = enums.PARENT_CLOSE_POLICY_TERMINATE
	o.fakePool.beforeStart()
	previous := o.fakePool.workers[run.Slot]
	a := o.fakePool.startWorker(run)
	if a == nil {
		options.WorkflowID = fmt.Sprint("refused ", o.fakePool.refused)
		refused := o.Next.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, options), refusedWorkflow, run)
		if previous == nil || !previous.open {
			return refused
		}
		return startedAs(ctx, refused, func(*workflow.Execution, error) error { // the environment has one of its own
			return &temporal.ChildWorkflowExecutionAlreadyStartedError{}
		})
	}
	a.stubChild = fmt.Sprint("stubChild ", len(o.fakePool.started))
	options.WorkflowID = a.stubChild
	return startedAs(ctx, o.Next.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, options), api.WorkflowWorker, run),
		func(execution *workflow.Execution, err error) error {
			execution.RunID = o.fakePool.runID(execution.RunID)
			return err
		})
}

// NewTimerWithOptions has the timers of the pool fire late while Temporal is to be away.
func (o *outbound) NewTimerWithOptions(ctx workflow.Context, d time.Duration,
	options workflow.TimerOptions) workflow.Future {
	return o.Next.NewTimerWithOptions(ctx, d+o.fakePool.away, options)
}

// child is a stub child with an execution as Temporal's.
type child struct {
	workflow.ChildWorkflowFuture
	started workflow.Future
}

func (c child) GetChildWorkflowExecution() workflow.Future { return c.started }

// startedAs changes what the environment says of the start of a child.
func startedAs(ctx workflow.Context, future workflow.ChildWorkflowFuture,
	change func(*workflow.Execution, error) error) workflow.ChildWorkflowFuture {
	started, settable := workflow.NewFuture(ctx)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var execution workflow.Execution
		err := change(&execution, future.GetChildWorkflowExecution().Get(ctx, &execution))
		settable.Set(execution, err)
	})
	return child{future, started}
}

// runID is a run ID that no other environment gives: each counts from the beginning, and a message about a workflow of
// an earlier run of the pool would be taken for one about another workflow.
func (p *fakePool) runID(id string) string { return fmt.Sprint(p.runs, "/", id) }

// childStarted lets a fake worker begin when its stub child runs.
func (p *fakePool) childStarted(info *workflow.Info, _ workflow.Context, _ converter.EncodedValues) {
	for _, a := range p.workers {
		if a.stubChild == info.WorkflowExecution.ID {
			a.entry.RunID = p.runID(info.WorkflowExecution.RunID)
			a.then(signalLatency, a.start)
		}
	}
}

func (o *outbound) SignalExternalWorkflow(ctx workflow.Context, workflowID, _, name string,
	argument any) workflow.Future {
	return o.deliver(ctx, workflowID, func(a *fakeWorker) { a.signal(name, typed(o.fakePool.t, name, argument)) })
}

// typed decodes what the pool sends again in its carried form.
func typed(t *testing.T, name string, argument any) any {
	raw, carried := argument.(json.RawMessage)
	if !carried {
		return argument
	}
	message := map[string]any{api.SignalRotationGrant: &api.RotationGrant{}, api.SignalOrder: &api.Order{}}[name]
	if message == nil {
		message = &api.Control{}
	}
	require.NoError(t, json.Unmarshal(raw, message))
	return reflect.ValueOf(message).Elem().Interface()
}

// deliver delivers a message if the worker runs both when it is sent and when it arrives.
func (o *outbound) deliver(ctx workflow.Context, workflowID string, handle func(*fakeWorker)) workflow.Future {
	future, settable := workflow.NewFuture(ctx)
	known := o.fakePool.running(workflowID)
	workflow.Go(ctx, func(ctx workflow.Context) {
		if err := workflow.Sleep(ctx, signalLatency+o.fakePool.slowSignals); err != nil {
			settable.SetError(err)
			return
		}
		a := o.fakePool.running(workflowID)
		if known == nil || a == nil {
			if o.fakePool.slowFailures > 0 && workflow.Sleep(ctx, o.fakePool.slowFailures) != nil {
				return
			}
			settable.SetError(errors.New("no workflow of that ID is running"))
			return
		}
		handle(a)
		if o.fakePool.slowAnswers > 0 && workflow.Sleep(ctx, o.fakePool.slowAnswers) != nil {
			return
		}
		settable.SetValue(nil)
	})
	return future
}

func (p *fakePool) running(workflowID string) *fakeWorker {
	for _, a := range p.workers {
		if a.open && a.entry.RunID != "" && api.WorkerWorkflowID(a.run.Pool, a.run.Slot) == workflowID {
			return a
		}
	}
	return nil
}
