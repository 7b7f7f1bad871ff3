package loop

import (
	"slices"

	"go.temporal.io/sdk/workflow"
)

// ear is a workflow.Selector that forgets: what a future was for is let go once it has been parked. A selector itself keeps every
// future it was ever given, and looks at each of them again whenever it is asked, until the run ends after thousands of events.
type Selector struct {
	ctx      workflow.Context
	selector workflow.Selector
	channels []registeredChannel
	futures  []*registeredFuture // in the order they were added, the heard among them
	handled  int
}

type registeredChannel struct {
	channel workflow.ReceiveChannel
	handle  func(workflow.ReceiveChannel)
}

type registeredFuture struct {
	future  workflow.Future
	handle  func(workflow.Future)
	handled bool
}

func NewSelector(ctx workflow.Context) *Selector {
	return &Selector{ctx: ctx, selector: workflow.NewSelector(ctx)}
}

// AddReceive has park called whenever the channel has something, for as long as the run goes on. Channels come before futures:
// they are all to be added first, or the order among what is ready would change once the ear forgets.
func (e *Selector) AddReceive(channel workflow.ReceiveChannel, park func(workflow.ReceiveChannel)) {
	c := registeredChannel{channel, park}
	e.channels = append(e.channels, c)
	e.registerChannel(c)
}

func (e *Selector) registerChannel(c registeredChannel) {
	e.selector.AddReceive(c.channel, func(channel workflow.ReceiveChannel, _ bool) { c.handle(channel) })
}

// AddFuture has park called once, when the future is ready.
func (e *Selector) AddFuture(future workflow.Future, park func(workflow.Future)) {
	f := &registeredFuture{future: future, handle: park}
	e.futures = append(e.futures, f)
	e.registerFuture(f)
}

func (e *Selector) registerFuture(f *registeredFuture) {
	e.selector.AddFuture(f.future, func(future workflow.Future) {
		f.handled = true
		e.handled++
		f.handle(future)
	})
}

// HasPending reports whether something can be parked at once.
func (e *Selector) HasPending() bool { return e.selector.HasPending() }

// listen parks what is ready, in the order it was added; it waits if nothing is, and then what comes first is first.
func (e *Selector) Select(ctx workflow.Context) {
	e.selector.Select(ctx)
	e.SelectPending(ctx)
}

// SelectPending parks what is ready, in the order it was added, without waiting.
func (e *Selector) SelectPending(ctx workflow.Context) {
	for e.HasPending() {
		e.selector.Select(ctx)
	}
	e.compact()
}

// compact replaces the selector by one that never knew what has been parked, when that is half of what it knows: the selector of a pool has
// two futures for each worker.
func (e *Selector) compact() {
	if e.handled == 0 || 2*e.handled < len(e.futures) {
		return
	}
	e.handled, e.selector = 0, workflow.NewSelector(e.ctx)
	for _, c := range e.channels {
		e.registerChannel(c)
	}
	e.futures = slices.DeleteFunc(e.futures, func(f *registeredFuture) bool { return f.handled })
	for _, f := range e.futures {
		e.registerFuture(f)
	}
}
