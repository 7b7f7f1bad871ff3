package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"
)

// ear is a workflow.Selector that forgets: what a future was for is let go once it has been parked. A selector itself keeps every
// future it was ever given, and looks at each of them again whenever it is asked, until the run ends after thousands of events.
type ear struct {
	ctx      workflow.Context
	selector workflow.Selector
	channels []awaitedChannel
	futures  []*awaitedFuture // in the order they were added, the heard among them
	heard    int
}

type awaitedChannel struct {
	channel workflow.ReceiveChannel
	park    func(workflow.ReceiveChannel)
}

type awaitedFuture struct {
	future workflow.Future
	park   func(workflow.Future)
	heard  bool
}

func newEar(ctx workflow.Context) *ear { return &ear{ctx: ctx, selector: workflow.NewSelector(ctx)} }

// addReceive has park called whenever the channel has something, for as long as the run goes on. Channels come before futures:
// they are all to be added first, or the order among what is ready would change once the ear forgets.
func (e *ear) addReceive(channel workflow.ReceiveChannel, park func(workflow.ReceiveChannel)) {
	c := awaitedChannel{channel, park}
	e.channels = append(e.channels, c)
	e.listenTo(c)
}

func (e *ear) listenTo(c awaitedChannel) {
	e.selector.AddReceive(c.channel, func(channel workflow.ReceiveChannel, _ bool) { c.park(channel) })
}

// addFuture has park called once, when the future is ready.
func (e *ear) addFuture(future workflow.Future, park func(workflow.Future)) {
	f := &awaitedFuture{future: future, park: park}
	e.futures = append(e.futures, f)
	e.await(f)
}

func (e *ear) await(f *awaitedFuture) {
	e.selector.AddFuture(f.future, func(future workflow.Future) {
		f.heard = true
		e.heard++
		f.park(future)
	})
}

// pending reports whether something can be parked at once.
func (e *ear) pending() bool { return e.selector.HasPending() }

// listen parks what is ready, in the order it was added; it waits if nothing is, and then what comes first is first.
func (e *ear) listen(ctx workflow.Context) {
	e.selector.Select(ctx)
	e.parkPending(ctx)
}

// parkPending parks what is ready, in the order it was added, without waiting.
func (e *ear) parkPending(ctx workflow.Context) {
	for e.pending() {
		e.selector.Select(ctx)
	}
	e.forget()
}

// forget replaces the selector by one that never knew what has been parked, when that is half of what it knows: the selector of a pool has
// two futures for each worker.
func (e *ear) forget() {
	if e.heard == 0 || 2*e.heard < len(e.futures) {
		return
	}
	e.heard, e.selector = 0, workflow.NewSelector(e.ctx)
	for _, c := range e.channels {
		e.listenTo(c)
	}
	e.futures = slices.DeleteFunc(e.futures, func(f *awaitedFuture) bool { return f.heard })
	for _, f := range e.futures {
		e.await(f)
	}
}
