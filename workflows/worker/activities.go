package worker

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// Deadlines of the activities of a worker.
const (
	// placementTimeout is how long a Start waits for a host with room before the worker is pending for one.
	placementTimeout = 10 * time.Second
	// capacityTimeout bounds one wait for a host with room; the wait is then renewed.
	capacityTimeout = time.Hour
	// watchTimeout bounds one Watch; it is then renewed.
	watchTimeout = 365 * 24 * time.Hour
	// slack is added to what an activity may take on its host before Temporal gives up on it.
	slack = 15 * time.Second
)

type activityOptions struct {
	queue, summary           string
	toStart, toClose, silent time.Duration
	awaitCancel              bool
	// tries is how often Temporal may try; 0 is once.
	tries int
}

// retries lets Temporal try so often, at waits that the activity asks for; where it could not, since its host was lost, soon.
func retries(tries int) *temporal.RetryPolicy {
	if tries <= 1 {
		return loop.Once
	}
	return &temporal.RetryPolicy{MaximumAttempts: int32(tries), InitialInterval: lostAttemptDelay, BackoffCoefficient: 1}
}

// lostAttemptDelay is the wait after a try of a start that was not heard of again.
const lostAttemptDelay = time.Second

// activity starts an activity and returns it with the task that stands for it.
func (w *worker) activity(name string, o activityOptions, input any) (*loop.Task, workflow.Future) {
	ctx, cancel := workflow.WithCancel(w.ctx)
	return w.task(cancel), execute(ctx, name, o, input)
}

// execute starts an activity that ctx calls off.
func execute(ctx workflow.Context, name string, o activityOptions, input any) workflow.Future {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              o.queue,
		ScheduleToStartTimeout: o.toStart,
		StartToCloseTimeout:    o.toClose,
		HeartbeatTimeout:       o.silent,
		WaitForCancellation:    o.awaitCancel,
		RetryPolicy:            retries(o.tries),
		Summary:                o.summary,
	})
	return workflow.ExecuteActivity(ctx, name, input)
}

// onHost are the options of an activity that touches the process.
func (w *worker) onHost(summary string, toClose time.Duration) activityOptions {
	return w.onHostOf(w.Process.Host, summary, toClose)
}

func (w *worker) onHostOf(host, summary string, toClose time.Duration) activityOptions {
	return activityOptions{queue: api.HostQueue(host), summary: summary, toStart: loop.HostTimeout, toClose: toClose}
}
