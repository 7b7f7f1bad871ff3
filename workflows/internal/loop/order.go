package loop

import (
	"slices"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"
)

// maxArrivals bounds the signals whose order a run remembers. A workflow task brings far fewer.
const maxArrivals = 1000

// arrivals are the names of the signals that have arrived at a run and may be unhandled, oldest first. The SDK has a
// channel for each name, which does not say whether a signal of another name came before.
type arrivals struct{ names []string }

type arrivalsKey struct{}

// SignalOrder returns the interceptor that OnOrder needs.
func SignalOrder() interceptor.WorkerInterceptor { return &signalOrder{} }

type signalOrder struct {
	interceptor.WorkerInterceptorBase
}

func (*signalOrder) InterceptWorkflow(_ workflow.Context,
	next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &orderedRun{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

type orderedRun struct {
	interceptor.WorkflowInboundInterceptorBase
	arrivals arrivals
}

func (r *orderedRun) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	return r.Next.ExecuteWorkflow(workflow.WithValue(ctx, arrivalsKey{}, &r.arrivals), in)
}

func (r *orderedRun) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	if len(r.arrivals.names) < maxArrivals {
		r.arrivals.names = append(r.arrivals.names, in.SignalName)
	}
	return r.Next.HandleSignal(ctx, in)
}

// OnOrder is OnSignal for signals that contradict those of other names. Those that arrive in one workflow task are
// handled one at a time, in order, and the workflow acts on each before the next.
func OnOrder[T any](l *Loop, name string, handle func(T), refuse func(string)) {
	OnSignal(l, name, handle, refuse)
	l.inboxes[len(l.inboxes)-1].order = name
}

// DrainEarly is DrainSignals for the handler of an update, which runs before the workflow.
func (l *Loop) DrainEarly() bool {
	if l.ordered {
		return l.drain(false)
	}
	found := l.drain(true)
	l.ordered = l.ordered || l.hasOrders()
	return found
}

// nextOrder is the order to handle alone; "" if those that wait do not contradict each other.
func (l *Loop) nextOrder() string {
	waiting := 0
	for _, box := range l.inboxes {
		if box.order != "" && box.channel.Len() > 0 {
			waiting++
		}
	}
	if waiting < 2 || l.arrivals == nil {
		return ""
	}
	for i, name := range l.arrivals.names {
		if slices.ContainsFunc(l.inboxes, func(box inbox) bool { return box.order == name && box.channel.Len() > 0 }) {
			l.arrivals.names = l.arrivals.names[i+1:]
			return name
		}
	}
	return ""
}

// hasOrders reports whether orders wait that were held back.
func (l *Loop) hasOrders() bool {
	return slices.ContainsFunc(l.inboxes, func(box inbox) bool { return box.order != "" && box.channel.Len() > 0 })
}

// drain handles the signals that have arrived: all but orders, and of these the next one that the workflow must act on
// alone, or all of them.
func (l *Loop) drain(orders bool) (found bool) {
	next := ""
	if orders {
		next = l.nextOrder()
	}
	for _, box := range l.inboxes {
		switch {
		case box.order == "", orders && next == "":
			for box.receive() {
				found = true
			}
		case orders && box.order == next:
			found = box.receive() || found
		}
	}
	if orders && next == "" && l.arrivals != nil {
		l.arrivals.names = nil
	}
	return found
}
