// Package workflows holds the two durable workflows of Tempool: a pool, and a worker in one slot of it. They are thin,
// deterministic shells: what may follow what is decided by lifecycle, when to try again by policy, and all that touches an
// operating system is an activity named in the root package.
package worker

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// Intents, weakest first; a stronger one replaces a weaker one.
const (
	IntentRecover Intent = ""        // nobody asked: count it and back off
	IntentReplace Intent = "replace" // start the next incarnation at once
	IntentRest    Intent = "rest"    // wait for an operator's restart
)

// worker is one run. Handlers of updates and signals change Run at once; everything that takes time is parked as a
// fact by a callback of the ear and acted on by settle, the only place that starts activities and timers.
type worker struct {
	Run
	ctx             workflow.Context // never cancelled: the process must be stopped after a cancellation, too
	selector        *loop.Selector
	wake            workflow.Channel
	iterations      int
	cancelledTasks  int  // tasks
	signalsInFlight int  // signals on their way to the pool; a run that ends before they are delivered loses them
	force           bool // continue as new as soon as possible
	signals         []loop.Inbox
	tasks           tasks
	events          pendingEvents
}

// Workflow is the workflow of one slot of a pool.
func Workflow(ctx workflow.Context, run Run) error {
	w := newWorker(ctx, run)
	if err := w.register(ctx); err != nil {
		return err
	}
	for {
		for w.reconcile() {
		}
		w.report()
		if w.isDone() {
			return w.reportGone()
		}
		if w.mayContinue() {
			if w.drainSignals() {
				continue
			}
			return workflow.NewContinueAsNewError(ctx, api.WorkflowWorker, w.Run)
		}
		w.iterations++
		if err := w.await(); err != nil {
			return err
		}
	}
}

// registerFuture waits until something has happened, and parks it. It polls the signals' channels instead of blocking on them: a blocked
// receiver would take a checkin off its channel before the loop has its turn, and the handler of a checkout in the same workflow
// task, which runs before the loop, could not see it.
func (w *worker) await() error {
	err := workflow.Await(w.ctx, func() bool { return w.selector.HasPending() || w.hasSignals() })
	w.drainSignals()
	w.selector.SelectPending(w.ctx)
	return err
}

func newWorker(ctx workflow.Context, run Run) *worker {
	lasting, _ := workflow.NewDisconnectedContext(ctx)
	w := &worker{
		Run:      run,
		ctx:      lasting,
		selector: loop.NewSelector(ctx),
		wake:     workflow.NewBufferedChannel(ctx, 1),
	}
	if w.Machine.State == "" {
		incarnation := w.Machine.Incarnation
		w.Machine = lifecycle.New(workflow.Now(ctx))
		w.Machine.Incarnation = incarnation
	}
	w.selector.AddReceive(w.wake, func(c workflow.ReceiveChannel) { c.Receive(ctx, nil) })
	workflow.Go(ctx, func(ctx workflow.Context) {
		ctx.Done().Receive(ctx, nil)
		w.cancelled()
		w.wakeUp()
	})
	return w
}

// cancelled ends the worker, unless the cancellation is only the echo of its pool continuing as new: Temporal applies the
// parent close policy there, too. A run can be cancelled once, so an excused one makes way for a run that can be again.
func (w *worker) cancelled() {
	if w.IgnoreNextCancel {
		w.IgnoreNextCancel, w.force = false, true
		return
	}
	w.end()
}

// end asks the worker to stop its process in good order and to complete.
func (w *worker) end() {
	if !w.Ending {
		w.Ending = true
		w.events.drain = w.events.drain.or("the pool asked this worker to end", "pool")
	}
}

func (w *worker) now() time.Time { return workflow.Now(w.ctx) }

func (w *worker) name() string { return api.WorkerName(w.Pool, w.Slot) }

func (w *worker) process() api.Process {
	return api.Process{Worker: w.name(), Incarnation: w.Machine.Incarnation}
}

// transition carries out one transition. It is called only where the table allows the event; that it does not is a programming
// error, which fails the workflow task, and with it nothing of the worker's state.
func (w *worker) transition(kind lifecycle.EventKind, reason string, exit *lifecycle.Exit) {
	w.transitionWith(lifecycle.Event{Kind: kind, Reason: reason, Exit: exit})
}

func (w *worker) transitionWith(event lifecycle.Event) {
	machine, err := lifecycle.Next(w.Machine, event, w.now())
	if err != nil {
		panic(err)
	}
	w.Machine = machine
}

// note puts a decision on record that moves nothing.
func (w *worker) record(kind lifecycle.NoteKind, reason string) {
	w.Machine = lifecycle.Noted(w.Machine, kind, reason, w.now())
}

// ended reports whether the workflow may complete.
func (w *worker) isDone() bool {
	return w.Ending && w.Machine.State.Outcome() && w.Successor == nil && len(w.Draining) == 0
}

// isIdle reports whether nothing that a new run could not take up is under way.
func (w *worker) isIdle() bool {
	if w.Successor != nil || len(w.Draining) > 0 {
		return false
	}
	switch w.Machine.State {
	case lifecycle.Ready, lifecycle.Busy, lifecycle.Degraded, lifecycle.Suspended:
		return w.tasks.probe == nil && !w.resetting()
	case lifecycle.Pending:
		return true
	}
	return w.Resting
}

func (w *worker) mayContinue() bool {
	info := workflow.GetInfo(w.ctx)
	due := w.force || info.GetContinueAsNewSuggested() || w.cancelledTasks >= maxCancelledTasks || (w.ContinueEvery > 0 && w.iterations >= w.ContinueEvery)
	return due && w.signalsInFlight == 0 && w.isIdle() && !w.events.any() && workflow.AllHandlersFinished(w.ctx)
}

// overLength reports whether the run has grown so long past the suggestion that new leases have to wait for the next run.
func (w *worker) overLength() bool {
	return workflow.GetInfo(w.ctx).GetCurrentHistoryLength() > 2*suggestedHistoryLength
}

// suggestedHistoryLength is where the server suggests to continue as new by default, in events.
const suggestedHistoryLength = 4096
