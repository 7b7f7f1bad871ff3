package loop

import (
	"slices"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// inbox is the channel of one kind of signal. receive handles the next signal, and reports whether there was one.
type inbox struct {
	channel workflow.ReceiveChannel
	receive func() bool
}

// OnSignal calls handle with each signal of that name, in order. A payload that cannot be decoded goes to refuse, with the reason.
func OnSignal[T any](l *Loop, name string, handle func(T), refuse func(string)) {
	channel := workflow.GetSignalChannel(l.Ctx, name)
	l.inboxes = append(l.inboxes, inbox{channel, func() bool {
		var raw converter.RawValue
		if !channel.ReceiveAsync(&raw) {
			return false
		}
		var value T
		if len(raw.Payload().GetData()) > 0 {
			if err := converter.GetDefaultDataConverter().FromPayload(raw.Payload(), &value); err != nil {
				refuse(name + ": cannot decode the payload: " + err.Error())
				return true
			}
		}
		handle(value)
		return true
	}})
}

// HasSignals reports whether a signal waits to be handled.
func (l *Loop) HasSignals() bool {
	return slices.ContainsFunc(l.inboxes, func(box inbox) bool { return box.channel.Len() > 0 })
}

// DrainSignals handles all signals that have arrived, and reports whether there were any. The next run would never see them.
func (l *Loop) DrainSignals() bool {
	found := false
	for _, box := range l.inboxes {
		for box.receive() {
			found = true
		}
	}
	return found
}

// Signal sends a signal to another workflow. done gets the result; the run does not continue as new before that.
func (l *Loop) Signal(workflowID, name string, message any, done func(error)) {
	l.sending++
	l.OnFuture(workflow.SignalExternalWorkflow(l.Ctx, workflowID, "", name, message), func(f workflow.Future) {
		l.sending--
		done(f.Get(l.Ctx, nil))
	})
}
