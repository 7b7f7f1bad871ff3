package loop

import (
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

func NewInbox[T any](ctx workflow.Context, name string, handle func(T), refuse func(string)) Inbox {
	channel := workflow.GetSignalChannel(ctx, name)
	return Inbox{channel, func() bool {
		var raw converter.RawValue
		if !channel.ReceiveAsync(&raw) {
			return false
		}
		var value T
		if len(raw.Payload().GetData()) > 0 {
			if err := converter.GetDefaultDataConverter().FromPayload(raw.Payload(), &value); err != nil {
				refuse(name + ": the payload cannot be read: " + err.Error())
				return true
			}
		}
		handle(value)
		return true
	}}
}

// Inbox is the channel of one kind of signal, and how the next one is taken from it and handled.
type Inbox struct {
	Channel workflow.ReceiveChannel
	Receive func() bool
}
