package worker

import (
	"fmt"
	"maps"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// Timeouts of the activities.
const (
	// placementTimeout is how long a Start waits for a host with capacity before the worker is pending.
	placementTimeout = 10 * time.Second
	// capacityTimeout bounds one wait for a host with capacity; the worker renews it.
	capacityTimeout = time.Hour
	// startQueueTimeout bounds how long a Start waits on its host for the end of others (start.concurrency), which may
	// hang until their own start.timeout. That the host is lost, its heartbeats tell.
	startQueueTimeout = time.Hour
	// slack is added to the time that an activity may take on its host.
	slack = 15 * time.Second
	// startHeartbeatEach is what each worker of a pool adds to the heartbeat time-out of a Start: starts that queue on a
	// host heartbeat, and a thousand of them at once are a load for Temporal.
	startHeartbeatEach = 30 * time.Millisecond
)

// retryOrder is for hosts that are too busy to answer, or that an order has not reached; one that is lost takes no
// further attempt.
var retryOrder = &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2,
	MaximumInterval: time.Minute}

// activities starts every activity of a worker; no other code does.
type activities struct{ *worker }

// startRequest asks for an incarnation under a spec.
func (a activities) startRequest(incarnation int64, sp spec.Spec) api.StartRequest {
	return api.StartRequest{
		Process: a.processOf(incarnation), Spec: sp, KeepIncarnations: a.surge.drainingNumbers(),
		RunID: workflow.GetInfo(a.Ctx).FirstRunID, Rules: a.rotator.rulesOfNext(sp), Replaced: a.replaced(),
	}
}

func (a activities) start(request api.StartRequest, summary string) loop.Activity {
	pool := request.Spec.Pool
	activity := loop.On(api.StartQueue(pool), api.ActivityStart, summary,
		startQueueTimeout+request.Spec.Start.Timeout.D()+slack, request)
	activity.ScheduleToStartTimeout, activity.WaitForCancellation = placementTimeout, true
	activity.HeartbeatTimeout = max(api.HeartbeatTimeout, time.Duration(pool.Size)*startHeartbeatEach)
	return activity
}

// startProcess starts the current incarnation.
func (a activities) startProcess() {
	request := a.startRequest(a.Machine.Incarnation, a.Spec)
	request.Failures, request.ShortLived = a.Failures, a.ShortLived
	request.Announce = a.reporter.announce()
	a.starter.announcing = request.Announce != nil
	activity := a.start(request, fmt.Sprintf("start incarnation %d of %s", a.Machine.Incarnation, a.name()))
	activity.StartToCloseTimeout += policy.Recovery(a.Spec.Recovery).Probation(a.Failures, a.ShortLived)
	a.tasks.start.Start(a.Loop, activity)
}

// startSuccessor starts an incarnation beside the current one. Cancelling ctx cancels it.
func (a activities) startSuccessor(ctx workflow.Context, incarnation int64, sp spec.Spec) workflow.Future {
	request := a.startRequest(incarnation, sp)
	request.KeepIncarnations = append(request.KeepIncarnations, a.Machine.Incarnation)
	request.Replaced = a.replacedBySuccessor()
	activity := a.start(request, fmt.Sprintf("start incarnation %d of %s to replace incarnation %d", incarnation, a.name(),
		a.Machine.Incarnation))
	if a.Rotation.refused {
		activity.ScheduleToStartTimeout = api.NextHostTimeout
	}
	return activity.Execute(ctx)
}

// claimSuccessor has the agent that took over the successor observe it, as its start has set. An agent kills what
// nobody claims.
func (a activities) claimSuccessor(ready api.StartResult) workflow.Future {
	return loop.OnEpoch(ready.Host, ready.Epoch, api.ActivityWatch, "claim "+api.ProcessText(ready.PID)+
		", which is to replace "+api.ProcessText(a.Process.PID), slack,
		api.WatchRequest{
			Process: a.processOf(a.Successor.Incarnation), Health: a.rotator.nextSpec().Health, Probe: true, Rules: ready.Rules,
			Replaced: a.replacedBySuccessor(),
		}).Execute(a.Ctx)
}

// replacedBySuccessor counts what the switch to the successor will.
func (a activities) replacedBySuccessor() api.Replaced {
	replaced := a.replaced()
	replaced.Rotations = incremented(maps.Clone(replaced.Rotations), a.Rotation.Cause)
	return replaced
}

func (a activities) awaitCapacity() {
	queue := api.StartQueue(a.Spec.Pool)
	activity := loop.On(queue, api.ActivityAwaitCapacity, "wait for a host with capacity on "+queue, slack, a.process())
	activity.ScheduleToStartTimeout = capacityTimeout
	activity.RetryPolicy = &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1} // it sets each delay
	a.tasks.awaitCapacity.Start(a.Loop, activity)
}

// onHost is an activity on the queue of the agent that has the process.
func (a activities) onHost(name, summary string, timeout time.Duration, input any) loop.Activity {
	return loop.OnEpoch(a.Process.Host, a.Process.Epoch, name, summary, timeout, input)
}

// onLive is onHost about a process that is to live on: if the agent leaves it to the next one, adopt gives that the
// order.
func (a activities) onLive(name, summary string, timeout time.Duration, input any) loop.Activity {
	activity := a.onHost(name, summary, timeout, input)
	activity.ScheduleToStartTimeout = api.AgentAway
	return activity
}

// repeated is an activity that Temporal repeats until the host has finished it.
func repeated(activity loop.Activity) loop.Activity {
	activity.HeartbeatTimeout, activity.RetryPolicy = api.HeartbeatTimeout, retryOrder
	return activity
}

// watch sets what the host observes of the process.
func (a activities) watch(request api.WatchRequest) {
	a.tasks.watch.Start(a.Loop, a.onLive(api.ActivityWatch, "set what is observed of "+api.ProcessText(a.Process.PID),
		slack, request))
}

func (a activities) replaced() api.Replaced {
	return api.Replaced{Rotations: a.Counters.RotationsByReason, Restarts: a.Counters.RestartsByReason}
}

func (a activities) probe() {
	request := api.WatchRequest{Process: a.process(), Health: a.Spec.Health}
	a.tasks.probe.Start(a.Loop, a.onLive(api.ActivityProbe, "health checkpoint", a.Spec.Health.Timeout.D()+slack, request))
}

func (a activities) reset(leaseID string) {
	timeout := a.Spec.Health.Timeout
	a.tasks.reset.Start(a.Loop, a.onLive(api.ActivityReset, "reset after lease "+leaseID+" expired", timeout.D()+slack,
		api.ResetRequest{Process: a.process(), LeaseID: leaseID, Timeout: timeout}))
}

// suspend has the host take the process out of service.
func (a activities) suspend(request api.SuspendRequest) {
	a.tasks.suspend.Start(a.Loop, repeated(a.onLive(api.ActivitySuspend,
		fmt.Sprintf("take process %d out of service", a.Process.PID),
		request.Timeout.D()+a.Spec.Call.CancelGrace.D()+request.HookTimeout.D()+slack, request)))
}

// resume has the host put the process back into service.
func (a activities) resume(request api.ResumeRequest) {
	a.tasks.resume.Start(a.Loop, repeated(a.onLive(api.ActivityResume,
		fmt.Sprintf("put process %d back into service", a.Process.PID),
		request.HookTimeout.D()+a.Spec.Call.CancelGrace.D()+slack, request)))
}

func (a activities) drain(limit spec.Duration) {
	a.tasks.drain.Start(a.Loop, a.onHost(api.ActivityDrain, "drain: wait for calls in flight", limit.D()+slack,
		api.DrainRequest{Process: a.process(), Timeout: limit}))
}

// drainIncarnation drains an incarnation beside the current one.
func (a activities) drainIncarnation(ctx workflow.Context, d drainingIncarnation) workflow.Future {
	limit := spec.Duration(max(0, d.Until.Sub(a.Now())))
	return loop.OnEpoch(d.Host, d.Epoch, api.ActivityDrain,
		fmt.Sprintf("drain incarnation %d: wait for calls in flight", d.Incarnation), limit.D()+slack,
		api.DrainRequest{Process: a.processOf(d.Incarnation), Timeout: limit}).Execute(ctx)
}

func (a activities) stop(reason string) {
	a.tasks.stop.Start(a.Loop, a.stopActivity(a.Process.Host, a.Process.Epoch, a.process(), "stop "+
		api.ProcessText(a.Process.PID), reason))
}

// stopIncarnation stops an incarnation beside the current one.
func (a activities) stopIncarnation(ctx workflow.Context, d drainingIncarnation) workflow.Future {
	return a.stopActivity(d.Host, d.Epoch, a.processOf(d.Incarnation), fmt.Sprintf("stop incarnation %d", d.Incarnation),
		d.Reason).Execute(ctx)
}

func (a activities) stopActivity(host string, epoch int64, process api.Process, what, reason string) loop.Activity {
	grace := a.Spec.Pool.StopGrace
	activity := repeated(loop.OnEpoch(host, epoch, api.ActivityStop, what+": "+reason, grace.D()+2*slack,
		api.StopRequest{Process: process, Grace: grace, Reason: reason}))
	// an agent that has heartbeat until then cannot stop the process: it is in an uninterruptible wait
	retry := *retryOrder
	retry.NonRetryableErrorTypes = []string{"TemporalTimeout:StartToClose"}
	activity.RetryPolicy = &retry
	return activity
}
