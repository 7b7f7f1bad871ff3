package loop

import (
	"encoding/json"
	"slices"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// inbox is the channel of one kind of signal. receive handles the next signal, and reports whether there was one.
type inbox struct {
	channel workflow.ReceiveChannel
	receive func() bool
	order   bool // its signals are orders
}

// OnSignal calls handle with each signal of that name, in order. A payload that cannot be decoded goes to refuse, with
// the reason.
func OnSignal[T any](l *Loop, name string, handle func(T), refuse func(string)) {
	channel := workflow.GetSignalChannel(l.Ctx, name)
	l.inboxes = append(l.inboxes, inbox{channel: channel, receive: func() bool {
		var raw converter.RawValue
		if !channel.ReceiveAsync(&raw) {
			return false
		}
		var value T
		if len(raw.Payload().GetData()) > 0 {
			if err := payloadsOf(l.Ctx).FromPayload(raw.Payload(), &value); err != nil {
				refuse(name + ": cannot decode the payload: " + err.Error())
				return true
			}
		}
		handle(value)
		return true
	}})
}

// payloadsKey is the context key of what converts payloads.
type payloadsKey struct{}

// WithPayloads sets what converts the payloads of signals. Default: the SDK's.
func WithPayloads(ctx workflow.Context, payloads converter.DataConverter) workflow.Context {
	return workflow.WithValue(ctx, payloadsKey{}, payloads)
}

func payloadsOf(ctx workflow.Context) converter.DataConverter {
	if payloads, set := ctx.Value(payloadsKey{}).(converter.DataConverter); set {
		return payloads
	}
	return converter.GetDefaultDataConverter()
}

// HasSignals reports whether a signal waits to be handled.
func (l *Loop) HasSignals() bool {
	return slices.ContainsFunc(l.inboxes, func(box inbox) bool { return box.channel.Len() > 0 })
}

// OnOrder is OnSignal for signals that contradict each other: DrainSignals handles one at a time, so that the workflow
// acts on each before the next.
func OnOrder[T any](l *Loop, name string, handle func(T), refuse func(string)) {
	OnSignal(l, name, handle, refuse)
	l.inboxes[len(l.inboxes)-1].order = true
}

// HasOrders reports whether an order waits to be handled.
func (l *Loop) HasOrders() bool {
	return slices.ContainsFunc(l.inboxes, func(box inbox) bool { return box.order && box.channel.Len() > 0 })
}

// DrainMessages handles the signals that have arrived, except orders, and reports whether there were any.
func (l *Loop) DrainMessages() (found bool) {
	for _, box := range l.inboxes {
		for !box.order && box.receive() {
			found = true
		}
	}
	return found
}

// DrainSignals handles the signals that have arrived, and of orders the next one, and reports whether there were any.
// The next run would never see them: a workflow acts on them, and calls DrainSignals again, until there are none.
func (l *Loop) DrainSignals() bool {
	found := l.DrainMessages()
	return slices.ContainsFunc(l.inboxes, func(box inbox) bool { return box.order && box.receive() }) || found
}

// Message is a signal to another workflow that was not delivered when its run ended; the next run sends it again. A
// signal may therefore arrive twice.
type Message struct {
	To       string          `json:"to"` // workflow ID
	Name     string          `json:"name"`
	Argument json.RawMessage `json:"argument,omitempty"`
}

// sending is a signal that is not delivered yet.
type sending struct {
	to, name string
	argument any
}

// OnUndelivered calls handle with the target, the name, the time and the error of each signal that could not be
// delivered.
func (l *Loop) OnUndelivered(handle func(workflowID, name string, sent time.Time, err error)) {
	l.undeliver = handle
}

// Signal sends a signal to another workflow.
func (l *Loop) Signal(workflowID, name string, argument any) {
	s, sent := &sending{workflowID, name, argument}, l.Now()
	l.sending = append(l.sending, s)
	l.OnFuture(workflow.SignalExternalWorkflow(l.Ctx, workflowID, "", name, argument), func(f workflow.Future) {
		l.sending = slices.DeleteFunc(l.sending, func(o *sending) bool { return o == s })
		if err := f.Get(l.Ctx, nil); err != nil {
			l.undeliver(workflowID, name, sent, err)
		}
	})
}

// IsSending reports whether a signal of that name is under way to a workflow.
func (l *Loop) IsSending(workflowID, name string) bool {
	return slices.ContainsFunc(l.sending, func(s *sending) bool { return s.to == workflowID && s.name == name })
}

// Undelivered are the signals that are under way, for the next run to send again.
func (l *Loop) Undelivered() []Message {
	var messages []Message
	for _, s := range l.sending {
		argument, err := json.Marshal(s.argument)
		if err != nil {
			panic(err) // it was encoded before
		}
		messages = append(messages, Message{s.to, s.name, argument})
	}
	return messages
}

// Resend sends what the previous run could not deliver.
func (l *Loop) Resend(messages []Message) {
	for _, m := range messages {
		l.Signal(m.To, m.Name, m.Argument)
	}
}
