package workflows

import (
	"errors"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

// facts are what callbacks have parked for settle to act on. Each is taken once.
type pendingEvents struct {
	capacity *completion[api.AwaitCapacityResult]
	start    *completion[api.StartResult]
	watch    *completion[api.WatchResult]
	probe    *completion[api.ProbeResult]
	drain    request
	drained  *completion[api.DrainResult]
	stop     request
	stopped  *completion[api.StopResult]
	reset    *completion[api.ResetResult]
	suspend  request
	resume   request
	restart  request

	successor *completion[api.StartResult]

	waitOver, checkpoint, leaseTimer, drainTimeout, uptime, retry bool
}

// any reports whether something waits to be acted on.
func (f pendingEvents) any() bool {
	return f.capacity != nil || f.start != nil || f.watch != nil || f.probe != nil || f.drained != nil || f.stopped != nil || f.reset != nil ||
		f.drain.wanted || f.stop.wanted || f.suspend.wanted || f.resume.wanted || f.restart.wanted ||
		f.successor != nil || f.waitOver || f.checkpoint || f.leaseTimer || f.drainTimeout || f.uptime || f.retry
}

// request is something an operator, a pool or an agent asked for.
type request struct {
	wanted   bool
	reason   string
	stayDown bool // the worker is to stay down afterwards
	// Of a restart: the word it is counted under, and whether the old process is to stop first.
	cause   api.Cause
	inPlace bool
}

func (r request) or(reason, by string) request {
	if r.wanted {
		return r
	}
	return request{wanted: true, reason: Attributed(reason, by)}
}

// Attributed puts a reason and who gave it into one phrase.
func Attributed(reason, by string) string {
	switch {
	case reason == "" && by == "":
		return "asked for, no reason given"
	case reason == "":
		return "asked for by " + by
	case by == "":
		return reason
	}
	return reason + " (by " + by + ")"
}

// completion is the end of an activity.
type completion[T any] struct {
	result T
	err    error
}

// tasks is the work under way whose end the ear waits for; nil means none.
type tasks struct {
	capacity, start, watch, probe, drain, stop *task // activities
	reset                                      *task
	wait, checkpoint, lease, drainLimit        *task     // timers
	uptime, retry                              *task     // timers
	leaseCheckAt                               time.Time // when the lease timer fires
	attempts                                   int       // that the newest start may make
	watchRequest                               api.WatchRequest
}

// task is one activity or timer that can be called off. One that its slot no longer holds is not listened to. Either is called in
// the end: the run's context remembers the task's context until then, with all its options.
type task struct {
	cancel  func() // calls it off
	release func() // lets go of it when it has ended
}

// maxCancelledTasks is how many tasks a run calls off before it continues as new. The SDK keeps, as long as a run goes on, some four
// kilobytes of each activity that was called off and ended otherwise than by that, and half a kilobyte of each such timer.
const maxCancelledTasks = 64

// task makes the worker's task of what cancel calls off.
func (w *worker) task(cancel workflow.CancelFunc) *task {
	return &task{cancel: func() { w.cancelledTasks++; cancel() }, release: cancel}
}

// take returns a parked fact and clears it.
func take[T any](p **T) *T {
	v := *p
	*p = nil
	return v
}

// run starts an activity; slot holds it until it ends, and then its answer is parked.
func run[T any](w *worker, slot **task, park **completion[T], name string, o activityOptions, input any) {
	t, future := w.activity(name, o, input)
	*slot = t
	w.selector.AddFuture(future, func(f workflow.Future) {
		if *slot != t {
			return
		}
		releaseTask(slot)
		var a completion[T]
		a.err = f.Get(w.ctx, &a.result)
		*park = &a
	})
}

// timer starts a timer that sets fired; slot holds it while it runs.
func (w *worker) timer(slot **task, fired *bool, options timerOptions) {
	ctx, cancel := workflow.WithCancel(w.ctx)
	t := w.task(cancel)
	*slot = t
	future := workflow.NewTimerWithOptions(ctx, options.after, workflow.TimerOptions{Summary: options.summary})
	w.selector.AddFuture(future, func(f workflow.Future) {
		if *slot != t {
			return
		}
		releaseTask(slot)
		*fired = f.Get(w.ctx, nil) == nil
	})
}

// releaseTask lets go of what slot holds, which has ended.
func releaseTask(slot **task) {
	(*slot).release()
	*slot = nil
}

// cancelTask cancels what slot holds, if anything, and stops listening to it.
func cancelTask(slot **task) {
	if *slot != nil {
		(*slot).cancel()
		*slot = nil
	}
}

// NotStarted reports whether nobody picked the activity up in time.
func NotStarted(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// TimedOut reports whether an agent picked the activity up and was not heard of again.
func TimedOut(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() != enums.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// Superseded reports whether a host refused a start because it knows this or a higher incarnation, and which.
func Superseded(err error) (newest int64, is bool) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != string(api.CodeSuperseded) || !app.HasDetails() {
		return 0, false
	}
	var details api.SupersededDetails
	if app.Details(&details) != nil {
		return 0, false
	}
	return details.Newest, true
}

// Message is what an activity's failure says to a person, without Temporal's wrapping.
func Message(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}
