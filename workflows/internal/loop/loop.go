// Package loop is the event loop of a long-lived workflow: it waits for signals and futures, and continues as new
// without losing any of them.
//
// Callbacks of the loop only record what happened. The workflow acts on it afterwards, in one place.
package loop

import (
	"hash/fnv"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"
)

// MaxCancelledTasks is how many tasks a run cancels before it continues as new. Until a run ends, the SDK retains about
// 4 kB of each activity that was cancelled and completed anyway, and 0.5 kB of each cancelled timer.
const MaxCancelledTasks = 64

// A run continues as new between minRunAge and maxRunAge after its start, so that code which only old histories need
// can be removed a day after an upgrade. The exact age depends on the run's ID: runs that started together do not end
// together.
const (
	maxRunAge = 24 * time.Hour
	minRunAge = 20 * time.Hour
)

// Loop is the event loop of one run. New makes it.
type Loop struct {
	// Ctx is never cancelled: a cancelled workflow still has to stop its processes.
	Ctx workflow.Context

	inboxes    []inbox
	futures    []pendingFuture // in the order they were added
	woken      bool
	root       workflow.Context // of the workflow; see OnCancel
	onCancel   func()           // nil once called
	ends       time.Time        // when the run is old enough to continue as new
	cancelled  int              // tasks
	sending    []*sending       // signals that are not delivered yet, oldest first
	undeliver  func(string, string, time.Time, error)
	iterations int
	forced     bool
	length     lengthLimit
}

// pendingFuture is a future that is not handled yet. A workflow.Selector would keep each future until the run ends, and
// check all of them again at each wait.
type pendingFuture struct {
	future workflow.Future
	handle func(workflow.Future)
}

// New makes the loop of a run.
func New(ctx workflow.Context) *Loop {
	disconnected, _ := workflow.NewDisconnectedContext(ctx)
	return &Loop{Ctx: disconnected,
		ends: workflow.Now(ctx).Add(runAge(workflow.GetInfo(ctx).OriginalRunID))}
}

// runAge is how old a run becomes.
func runAge(runID string) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(runID)) // cannot fail
	return minRunAge + time.Duration(hash.Sum64()%uint64(maxRunAge-minRunAge))
}

// HasChange reports whether the run works with a change of this name. A run that a build without it began
// continues without it.
func (l *Loop) HasChange(name string) bool {
	return workflow.GetVersion(l.Ctx, name, workflow.DefaultVersion, 1) >= 1
}

// Now is the workflow's time.
func (l *Loop) Now() time.Time { return workflow.Now(l.Ctx) }

// Ends is when the run is old enough to continue as new.
func (l *Loop) Ends() time.Time { return l.ends }

// WakeUp ends the current or the next Await: a handler has changed something that the workflow must act on.
func (l *Loop) WakeUp() { l.woken = true }

// OnFuture calls handle once, from Await, when the future is ready.
func (l *Loop) OnFuture(future workflow.Future, handle func(workflow.Future)) {
	l.futures = append(l.futures, pendingFuture{future, handle})
}

// Await waits for a signal, a future or WakeUp, and handles all signals and then all futures that are ready. It polls
// the signal channels instead of blocking on them: a blocked receiver would take a signal off its channel before the
// workflow runs, and an update handler in the same workflow task could not see it.
func (l *Loop) Await() error {
	l.iterations++
	err := workflow.Await(l.Ctx, func() bool { return l.hasWork() || l.cancelPending() })
	l.handleReady() // in a function of its own: a cached run holds the stack of Await while it waits
	return err
}

func (l *Loop) handleReady() {
	if !l.hasWork() {
		l.HandleCancel()
	}
	l.DrainSignals()
	l.HandleFutures()
	l.woken = false
	l.observeLength()
}

// HandleFutures handles the futures that are ready. Await does; a handler of an update, which runs before the workflow,
// may have to know what has come in the same workflow task.
func (l *Loop) HandleFutures() {
	for i := l.nextReady(); i >= 0; i = l.nextReady() {
		ready := l.futures[i]
		l.futures = slices.Delete(l.futures, i, i+1)
		ready.handle(ready.future)
	}
}

// OnCancel calls handle once, from Await, when the workflow of ctx is cancelled and there is nothing else to do. Unlike
// a coroutine that waits for that, it needs no stack of its own, which each cached run would hold.
func (l *Loop) OnCancel(ctx workflow.Context, handle func()) { l.root, l.onCancel = ctx, handle }

// HandleCancel handles a cancellation, and reports whether there was one. Await does; a run that is about to end may
// have to know of one that has come since: Temporal cancels one run, not the next one.
func (l *Loop) HandleCancel() bool {
	if !l.cancelPending() {
		return false
	}
	handle := l.onCancel
	l.onCancel = nil
	handle()
	return true
}

func (l *Loop) cancelPending() bool { return l.onCancel != nil && l.root.Err() != nil }

func (l *Loop) hasWork() bool {
	return l.woken || l.HasSignals() || l.nextReady() >= 0 || l.length.crossed(l.Ctx)
}

func (l *Loop) nextReady() int {
	return slices.IndexFunc(l.futures, func(p pendingFuture) bool { return p.future.IsReady() })
}

// CountCancelled counts a cancelled activity that no Call or Timer runs.
func (l *Loop) CountCancelled() { l.cancelled++ }

// ForceContinue makes ContinueDue true from now on.
func (l *Loop) ForceContinue() { l.forced = true }

// ContinueDue reports whether the run should continue as new: the server suggests it, ForceContinue was called, the run
// has cancelled too many tasks, it is about a day old, or it has awaited maxIterations times (0 means no limit). It is
// false while a signal to another workflow is not delivered or a handler of an update runs: the end of the run would
// lose them.
func (l *Loop) ContinueDue(maxIterations int) bool {
	due := l.forced || workflow.GetInfo(l.Ctx).GetContinueAsNewSuggested() || l.cancelled >= MaxCancelledTasks ||
		maxIterations > 0 && l.iterations >= maxIterations || !l.Now().Before(l.ends)
	return due && l.isIdle()
}

// isIdle reports whether no signal is under way to another workflow, and no update is being handled.
func (l *Loop) isIdle() bool { return len(l.sending) == 0 && workflow.AllHandlersFinished(l.Ctx) }

// Update is an update that a workflow takes.
type Update struct {
	Name    string
	Handler any
	Options workflow.UpdateHandlerOptions
}

// SetUpdates sets the handlers of updates.
func SetUpdates(ctx workflow.Context, updates ...Update) error {
	for _, u := range updates {
		if err := workflow.SetUpdateHandlerWithOptions(ctx, u.Name, u.Handler, u.Options); err != nil {
			return err
		}
	}
	return nil
}
