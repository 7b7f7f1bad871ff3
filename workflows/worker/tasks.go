package worker

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// tasks is the work under way whose end the ear waits for; nil means none.
type tasks struct {
	capacity, start, watch, probe, drain, stop *loop.Task // activities
	reset                                      *loop.Task
	wait, checkpoint, lease, drainLimit        *loop.Task // timers
	uptime, retry                              *loop.Task // timers
	leaseCheckAt                               time.Time  // when the lease timer fires
	attempts                                   int        // that the newest start may make
	watchRequest                               api.WatchRequest
}

// maxCancelledTasks is how many tasks a run calls off before it continues as new. The SDK keeps, as long as a run goes on, some four
// kilobytes of each activity that was called off and ended otherwise than by that, and half a kilobyte of each such timer.
const maxCancelledTasks = 64

// task makes the worker's task of what cancel calls off.
func (w *worker) task(cancel workflow.CancelFunc) *loop.Task {
	return &loop.Task{Cancel: func() { w.cancelledTasks++; cancel() }, Release: cancel}
}

// run starts an activity; slot holds it until it ends, and then its answer is parked.
func run[T any](w *worker, slot **loop.Task, park **completion[T], name string, o activityOptions, input any) {
	t, future := w.activity(name, o, input)
	*slot = t
	w.selector.AddFuture(future, func(f workflow.Future) {
		if *slot != t {
			return
		}
		loop.ReleaseTask(slot)
		var a completion[T]
		a.err = f.Get(w.ctx, &a.result)
		*park = &a
	})
}

// timer starts a timer that sets fired; slot holds it while it runs.
func (w *worker) timer(slot **loop.Task, fired *bool, options timerOptions) {
	ctx, cancel := workflow.WithCancel(w.ctx)
	t := w.task(cancel)
	*slot = t
	future := workflow.NewTimerWithOptions(ctx, options.after, workflow.TimerOptions{Summary: options.summary})
	w.selector.AddFuture(future, func(f workflow.Future) {
		if *slot != t {
			return
		}
		loop.ReleaseTask(slot)
		*fired = f.Get(w.ctx, nil) == nil
	})
}

type timerOptions struct {
	after   time.Duration
	summary string
}
