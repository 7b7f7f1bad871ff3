package workflows

import (
	"cmp"
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/emit"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// StateFormats are the numbers of the formats of the state that a run receives, by workflow type: its fields, and what
// their values mean. Those that are not listed are 1. Raise a number with each change that adds or removes a field or
// adds a value: an agent of an earlier build then never continues such a run. It would drop what it does not know.
var StateFormats = map[string]int{}

func formatOf(formats map[string]int, workflowType string) int {
	return cmp.Or(formats[workflowType], 1)
}

// stateFormatHeader is the header of a run with the format of the build that wrote its input. Without it, as in the
// first run of a pool, the format is 1.
const stateFormatHeader = "tempool-state-format"

// Interceptors returns what every Temporal worker that runs the registered workflows needs; payloads converts those of
// its namespace. It marks the state that a run hands to the next one, or to a child, with its format. The workflow task
// of a run whose state is newer than this build fails, and Temporal retries it until an agent with a newer build takes
// it.
//
// The events of workflows go to their agent by emitTo; nil takes none. A replay emits none. Events are emitted at least
// once: a workflow task that Temporal did not accept is executed again, here or by another agent.
func Interceptors(payloads converter.DataConverter, emitTo api.Emit) []interceptor.WorkerInterceptor {
	return []interceptor.WorkerInterceptor{&stateFormats{known: StateFormats, payloads: payloads,
		events: emit.Sink{Emit: emitTo}}}
}

// ReplayInterceptors are Interceptors for a replay that emits the events again, in their order, and the notes in the
// record of a worker as transitions.
func ReplayInterceptors(payloads converter.DataConverter, emitTo api.Emit) []interceptor.WorkerInterceptor {
	return []interceptor.WorkerInterceptor{&stateFormats{known: StateFormats, payloads: payloads,
		events: emit.Sink{Emit: emitTo, Replays: true}}}
}

type stateFormats struct {
	interceptor.WorkerInterceptorBase
	known    map[string]int
	payloads converter.DataConverter
	events   emit.Sink
}

func (s *stateFormats) InterceptWorkflow(_ workflow.Context,
	next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &checkedRun{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next},
		stateFormats: s}
}

// checkedRun refuses a run with newer state. It does all that is done for each run: a further interceptor would take
// more of each cached run's stack.
type checkedRun struct {
	interceptor.WorkflowInboundInterceptorBase
	*stateFormats
}

func (r *checkedRun) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return r.Next.Init(
		&markedRun{WorkflowOutboundInterceptorBase: interceptor.WorkflowOutboundInterceptorBase{Next: outbound},
			known: r.known})
}

func (r *checkedRun) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	r.check(ctx)
	return r.Next.ExecuteWorkflow(loop.WithPayloads(emit.With(ctx, r.events), r.payloads), in)
}

func (r *checkedRun) check(ctx workflow.Context) {
	if mark, marked := interceptor.WorkflowHeader(ctx)[stateFormatHeader]; marked {
		var format int
		if err := converter.GetDefaultDataConverter().FromPayload(mark, &format); err != nil {
			panic(fmt.Sprintf("unreadable header %s: %v", stateFormatHeader, err))
		}
		// a panic fails the workflow task; an error would end the workflow
		if known := formatOf(r.known, workflow.GetInfo(ctx).WorkflowType.Name); format > known {
			panic(fmt.Sprintf("the state of this run has format %d, and this build knows formats up to %d; an agent with a "+
				"newer build continues it: upgrade this agent",
				format, known))
		}
	}
}

// markedRun marks the state that leaves a run.
type markedRun struct {
	interceptor.WorkflowOutboundInterceptorBase
	known map[string]int
}

func (r *markedRun) NewContinueAsNewError(ctx workflow.Context, definition any, args ...any) error {
	r.mark(ctx, workflow.GetInfo(ctx).WorkflowType.Name)
	return r.Next.NewContinueAsNewError(ctx, definition, args...)
}

func (r *markedRun) ExecuteChildWorkflow(ctx workflow.Context, workflowType string,
	args ...any) workflow.ChildWorkflowFuture {
	r.mark(ctx, workflowType)
	return r.Next.ExecuteChildWorkflow(ctx, workflowType, args...)
}

func (r *markedRun) mark(ctx workflow.Context, workflowType string) {
	mark, err := converter.GetDefaultDataConverter().ToPayload(formatOf(r.known, workflowType))
	if err != nil {
		panic(err) // a number
	}
	interceptor.WorkflowHeader(ctx)[stateFormatHeader] = mark
}
