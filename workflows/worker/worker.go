// Package worker is the durable workflow of one slot of a pool: it starts processes, leases them, watches them, and
// replaces them.
//
// Handlers and callbacks only change Run or record a request or a result. The loop acts on them: reconcile compares
// what is wanted with what is, and starts what is missing. All activities are in activities.go.
package worker

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/emit"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// worker is one run.
type worker struct {
	*Run
	*loop.Loop
	tasks tasks

	activities activities
	starter    starter
	monitor    monitor
	leases     leases
	rotator    rotator
	surge      surge
	suspender  suspender
	reporter   reporter
}

// tasks are the activities and timers of a run.
type tasks struct {
	awaitCapacity loop.Call[api.AwaitCapacityResult]
	start         loop.Call[api.StartResult]
	watch         loop.Call[api.WatchResult]
	probe         loop.Call[api.WatchResult]
	drain         loop.Call[api.DrainResult]
	stop          loop.Call[api.StopResult]
	reset         loop.Call[api.ResetResult]
	suspend       loop.Call[api.SuspendResult]
	resume        loop.Call[api.ResumeResult]

	wait       loop.Timer // before a pending start
	checkpoint loop.Timer // before the next health checkpoint
	lease      loop.Timer // lease expiry
	drainLimit loop.Timer // the drain timeout
	uptime     loop.Timer // rotation.max_uptime
	retry      loop.Timer // before a rotation is retried
}

// task is an activity or a timer.
type task interface {
	Ended() bool
	Reset()
}

// ofProcess are the tasks that need the process.
func (t *tasks) ofProcess() []task {
	return []task{&t.watch, &t.probe, &t.drain, &t.stop, &t.reset, &t.suspend, &t.resume, &t.checkpoint, &t.lease,
		&t.drainLimit, &t.uptime, &t.retry}
}

// hasResults reports whether a result or the end of a timer waits for reconcile.
func (t *tasks) hasResults() bool {
	return slices.ContainsFunc(append(t.ofProcess(), &t.awaitCapacity, &t.start, &t.wait), task.Ended)
}

// Workflow is the workflow of one slot of a pool.
//
// An agent caches thousands of runs, each with the stack on which it waits. So that stack is kept small: run is a
// pointer, since the SDK's calls copy a value onto it three times, and what needs much of it is in functions of its
// own.
func Workflow(ctx workflow.Context, run *Run) error {
	w := newWorker(ctx, run)
	if err := w.register(ctx); err != nil {
		return err
	}
	w.takeOver()
	w.OnCancel(ctx, w.cancelled)
	for {
		if ended, err := w.step(ctx); ended {
			return err
		}
		if err := w.Await(); err != nil {
			return err
		}
	}
}

// step does everything until the worker has to wait. ended means that the run ends, with err.
func (w *worker) step(ctx workflow.Context) (ended bool, err error) {
	for {
		for w.reconcile() {
		}
		w.reporter.report()
		if w.isDone() {
			w.reporter.reportGone()
			return true, nil
		}
		if !w.mayContinue() {
			return false, nil
		}
		if !w.DrainSignals() && !w.HandleCancel() {
			return true, workflow.NewContinueAsNewError(ctx, api.WorkflowWorker, w.carry())
		}
	}
}

func newWorker(ctx workflow.Context, run *Run) *worker {
	w := &worker{Run: run, Loop: loop.New(ctx)}
	w.activities, w.starter, w.monitor = activities{w}, starter{worker: w}, monitor{worker: w}
	w.leases, w.rotator, w.surge, w.reporter = leases{worker: w}, rotator{w}, surge{worker: w}, reporter{w}
	w.suspender = suspender{worker: w}
	w.OnUndelivered(w.reporter.undelivered)
	if w.Machine.State == "" {
		incarnation := w.Machine.Incarnation
		w.Machine = lifecycle.New(workflow.Now(ctx))
		w.Machine.Incarnation = incarnation
	}
	return w
}

// reconcile handles the results and requests that the current state takes, starts the tasks that it needs, and reports
// whether anything changed. The loop calls it until nothing does.
func (w *worker) reconcile() bool {
	if w.monitor.handleEpochEnd() {
		return true
	}
	switch w.Machine.State {
	case lifecycle.Created:
		return w.starter.startFirst()
	case lifecycle.Pending:
		return w.starter.awaitStart()
	case lifecycle.Starting:
		return w.starter.start()
	case lifecycle.Ready, lifecycle.Busy, lifecycle.Degraded, lifecycle.Suspended:
		return w.serve()
	case lifecycle.Draining:
		return w.drain()
	case lifecycle.Stopping:
		return w.stop()
	}
	return w.decideNext()
}

// serve runs a worker with a live process: ready, busy, degraded or suspended. Requests come first, then results of
// activities, then timers.
func (w *worker) serve() bool {
	return w.handleRequests() || w.handleResults() || w.handleTimers() || w.rotator.rotate() || w.monitor.ensureWatch()
}

func (w *worker) handleResults() bool {
	if e := w.monitor.takeEvent(); e != nil {
		switch e.Event {
		case api.WatchProbeFailed, api.WatchProbePassed, api.WatchUnhealthy:
			w.Observing.Failures = 0 // the host probes at its usual interval again
		}
		w.monitor.handle(*e)
		return true
	}
	if r := w.tasks.watch.Take(); r != nil {
		w.monitor.watchEnded(r)
		return true
	}
	if r := w.tasks.reset.Take(); r != nil {
		w.leases.resetEnded(r)
		return true
	}
	if r := w.tasks.probe.Take(); r != nil {
		w.NextCheckpoint = w.Now().Add(w.Spec.Health.Checkpoint.D())
		switch {
		case w.monitor.agentLost(r.Err):
		case r.Err == nil: // otherwise it proves nothing, Temporal may have lost it; the next checkpoint follows
			w.monitor.handle(r.Value)
		}
		return true
	}
	return false
}

func (w *worker) handleTimers() bool {
	if w.tasks.lease.Take() && w.leases.expire() {
		return true
	}
	w.leases.ensureTimer()
	w.tasks.uptime.Take()
	w.rotator.ensureUptimeTimer()
	suspended := w.Machine.State == lifecycle.Suspended
	if w.tasks.checkpoint.Take() && !w.tasks.probe.Running() && !suspended {
		w.activities.probe()
	}
	if !w.tasks.checkpoint.Running() && !w.tasks.probe.Running() && !suspended &&
		!w.leases.timerFiresBefore(w.NextCheckpoint) {
		w.tasks.checkpoint.Start(w.Loop, max(0, w.NextCheckpoint.Sub(w.Now())), "next health checkpoint")
	}
	return false
}

// cancelled ends the worker: somebody has cancelled its workflow.
func (w *worker) cancelled() { w.end("workflow cancelled") }

// end drains and stops the process, and then completes the workflow.
func (w *worker) end(reason string) {
	if !w.Ending {
		w.Ending = true
		if !w.isRequested(api.SignalDrain) {
			w.addRequest(PendingRequest{Kind: api.SignalDrain, Reason: display.Attributed(reason, "")})
		}
	}
}

func (w *worker) name() string { return api.WorkerName(w.Pool, w.Slot) }

// process is the current incarnation.
func (w *worker) process() api.Process { return w.processOf(w.Machine.Incarnation) }

func (w *worker) processOf(incarnation int64) api.Process {
	return api.Process{Worker: w.name(), Incarnation: incarnation}
}

// transition moves the machine. An event that the state does not take is a programming error: it fails the workflow
// task and changes nothing.
func (w *worker) transition(kind lifecycle.EventKind, reason string) {
	w.apply(lifecycle.Event{Kind: kind, Reason: reason})
}

func (w *worker) apply(event lifecycle.Event) {
	machine, err := lifecycle.Next(w.Machine, event, w.Now())
	if err != nil {
		panic(err)
	}
	w.Machine = machine
	w.emitTransition()
	if event.Exit != nil && !w.surge.switching {
		w.countEnd(machine.State)
	}
}

// countEnd counts a process that has ended.
func (w *worker) countEnd(outcome lifecycle.State) {
	if w.Counters.EndedByOutcome == nil {
		w.Counters.EndedByOutcome = map[string]int64{}
	}
	w.Counters.EndedByOutcome[string(outcome)]++
}

// record puts a decision that moves nothing into the history.
func (w *worker) record(kind lifecycle.NoteKind, reason string) {
	w.Machine = lifecycle.Recorded(w.Machine, kind, reason, w.Now())
	if emit.To(w.Ctx).Replays { // who replays wants the whole record
		w.emitTransition()
	}
}

// warn logs a decision about this incarnation, and its reason.
func (w *worker) warn(message, reason string) {
	workflow.GetLogger(w.Ctx).Warn(message, "worker", w.name(), "incarnation", w.Machine.Incarnation, "reason", reason)
}

// refuse counts and records a request that the worker did not carry out. what may quote all of it.
func (w *worker) refuse(what string) {
	what = display.Shorten(what)
	w.Counters.LeasesRefused++
	w.LastRefusal = w.Now().UTC().Format(time.RFC3339) + " " + what
	workflow.GetLogger(w.Ctx).Info("request refused", "worker", w.name(), "request", what)
}

// lastReason is the reason of the newest transition.
func (w *worker) lastReason() string {
	for _, t := range slices.Backward(w.Machine.Ring) {
		if !t.IsNote() {
			return t.Reason
		}
	}
	return ""
}

// reason is why the worker is in its state. One that its pool has ended waits for nothing more.
func (w *worker) reason() string {
	if w.Wait.Reason != "" && (!w.Ending || w.Resting) {
		return w.Wait.Reason
	}
	return w.lastReason()
}

// isDone reports whether the workflow may complete.
func (w *worker) isDone() bool {
	return w.Ending && w.Machine.State.Outcome() && w.Successor == nil && len(w.Draining) == 0
}
