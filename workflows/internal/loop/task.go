package loop

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

// task is one activity or timer at a time. The zero task is idle.
type task struct {
	run *execution
}

// execution is one start of a task. A task ignores the end of an execution that it has cancelled.
type execution struct {
	loop   *Loop
	cancel workflow.CancelFunc
}

// Running reports whether the activity or timer is under way.
func (t *task) Running() bool { return t.run != nil }

// Cancel cancels the activity or timer, if it is under way, and ignores how it ends.
func (t *task) Cancel() {
	if t.run != nil {
		t.RequestCancel()
		t.run = nil
	}
}

// RequestCancel cancels the activity or timer, and still takes its result.
func (t *task) RequestCancel() {
	if t.run != nil {
		t.run.loop.CountCancelled()
		t.run.cancel()
	}
}

// start calls begin with a context that Cancel cancels, and end when its future is ready.
func (t *task) start(l *Loop, begin func(workflow.Context) workflow.Future, end func(workflow.Future)) {
	ctx, cancel := workflow.WithCancel(l.Ctx)
	run := &execution{l, cancel}
	t.run = run
	l.OnFuture(begin(ctx), func(f workflow.Future) {
		if t.run != run {
			return
		}
		t.run = nil
		cancel() // releases the context, which the parent would retain until the run ends
		end(f)
	})
}

// Timer is one timer at a time. The zero Timer is idle.
type Timer struct{ Call[struct{}] }

// Start starts the timer. summary is what the Web UI shows.
func (t *Timer) Start(l *Loop, d time.Duration, summary string) {
	t.start(l, func(ctx workflow.Context) workflow.Future {
		return workflow.NewTimerWithOptions(ctx, d, workflow.TimerOptions{Summary: summary})
	}, func(f workflow.Future) {
		if f.Get(l.Ctx, nil) == nil {
			t.result = &Result[struct{}]{}
		}
	})
}

// Take reports whether the timer has ended since the last Take.
func (t *Timer) Take() bool { return t.Call.Take() != nil }
