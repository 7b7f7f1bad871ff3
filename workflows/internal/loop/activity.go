package loop

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

// Activity is one activity to execute. Without a retry policy it is a single attempt.
type Activity struct {
	workflow.ActivityOptions
	Name  string
	Input any
}

// On is an activity on a task queue that an agent has to take within api.HostTimeout.
func On(queue, name, summary string, timeout time.Duration, input any) Activity {
	return Activity{workflow.ActivityOptions{TaskQueue: queue, Summary: summary, ScheduleToStartTimeout: api.HostTimeout,
		StartToCloseTimeout: timeout}, name, input}
}

// OnHost is an activity on the task queue of a host.
func OnHost(host, name, summary string, timeout time.Duration, input any) Activity {
	return On(api.HostQueue(host), name, summary, timeout, input)
}

// OnEpoch is an activity on the task queue of one epoch of a host: a later agent never gets it.
func OnEpoch(host string, epoch int64, name, summary string, timeout time.Duration, input any) Activity {
	return On(api.HostEpochQueue(host, epoch), name, summary, timeout, input)
}

// Execute starts the activity. Cancelling ctx cancels it.
func (a Activity) Execute(ctx workflow.Context) workflow.Future {
	if a.RetryPolicy == nil {
		a.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, a.ActivityOptions), a.Name, a.Input)
}

// Result is how an activity ended.
type Result[T any] struct {
	Value T
	Err   error
}

// Call is one activity at a time, and its result until Take. The zero Call is idle.
type Call[T any] struct {
	task
	result *Result[T]
}

// Start executes the activity.
func (c *Call[T]) Start(l *Loop, a Activity) {
	c.start(l, a.Execute, func(f workflow.Future) {
		c.result = &Result[T]{}
		c.result.Err = f.Get(l.Ctx, &c.result.Value)
	})
}

// Ended reports whether a result waits for Take.
func (c *Call[T]) Ended() bool { return c.result != nil }

// Take returns the result and forgets it; nil if there is none.
func (c *Call[T]) Take() *Result[T] {
	result := c.result
	c.result = nil
	return result
}

// Reset cancels the activity and forgets its result.
func (c *Call[T]) Reset() {
	c.Cancel()
	c.result = nil
}

// Abandon cancels the activity and forgets a failure: a result that has arrived counts.
func (c *Call[T]) Abandon() {
	c.Cancel()
	if r := c.result; r != nil && r.Err != nil {
		c.result = nil
	}
}
