package worker

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	gatewaypool "github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/workflows"
)

const (
	// heartbeatThrottle is the shortest time between two heartbeats that the SDK sends to Temporal.
	heartbeatThrottle = 3 * time.Second
	// workerStopTimeout is the time that activities get to end when their worker stops. By then every process has ended.
	workerStopTimeout = 10 * time.Second
	// deadlockTimeout is how long a workflow's code may run until the SDK considers it deadlocked, fails the task and
	// leaves the code running beside its next attempt. The SDK's second is too short on a host whose cores are busy with
	// workers; Temporal itself gives a task ten seconds.
	deadlockTimeout = 8 * time.Second
	// checkoutPatience is how long a workflow's checkout waits for a worker that another call has taken meanwhile. Then it
	// waits in Temporal again, for any host.
	checkoutPatience = time.Second
	// poolQueueLinger is how long a pool's queue is polled after the pool's last process on this host has ended; after a
	// crash the next process follows soon.
	poolQueueLinger = 10 * time.Second
	// poolQueueRetry is the delay after a failed start of a pool's Temporal worker.
	poolQueueRetry = 2 * time.Second
)

func (a *Agent) newWorker(queue string, options sdkworker.Options) sdkworker.Worker {
	options.WorkerStopTimeout = cmp.Or(options.WorkerStopTimeout, workerStopTimeout)
	options.DeadlockDetectionTimeout = deadlockTimeout
	options.OnFatalError = func(err error) { a.fail(fmt.Errorf("poll %s: %w", queue, err)) }
	return sdkworker.New(a.temporal, queue, options)
}

func register(w sdkworker.Worker, functions map[string]any) {
	for name, f := range functions {
		w.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
}

// fail ends the agent with its first fatal error.
func (a *Agent) fail(err error) {
	a.hasFailed.Store(true)
	select {
	case a.failed <- err:
	default:
	}
}

// Polls that a worker of the SDK may have open at once.
const (
	defaultPollers = 0 // the SDK's choice
	// placementPollers is 1, since all placement queues of a host share its slots, and a poll holds one.
	placementPollers = 1
)

// newActivityWorker makes a worker for the activities of one queue, which polls only with permits of the supplier.
func (a *Agent) newActivityWorker(queue string, supplier sdkworker.SlotSupplier, pollers int, stopTimeout time.Duration,
	interceptors ...interceptor.WorkerInterceptor) sdkworker.Worker {
	// The SDK wants slots for each kind of task that such a worker never gets, too. Neither call fails: the number is
	// positive.
	const unusedSlots = 2
	unused, _ := sdkworker.NewFixedSizeSlotSupplier(unusedSlots)
	tuner, _ := sdkworker.NewCompositeTuner(sdkworker.CompositeTunerOptions{
		ActivitySlotSupplier: supplier, WorkflowSlotSupplier: unused, LocalActivitySlotSupplier: unused,
		NexusSlotSupplier: unused, SessionActivitySlotSupplier: unused,
	})
	return a.newWorker(queue, sdkworker.Options{
		DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: heartbeatThrottle, Tuner: tuner,
		DisableEagerActivities:           true,
		MaxConcurrentActivityTaskPollers: pollers, WorkerStopTimeout: stopTimeout, Interceptors: interceptors,
	})
}

// newPoolQueues makes what polls the task queue of each pool with a ready process.
func (a *Agent) newPoolQueues() *whileHere {
	ready := func(p *process.Process) any {
		if p.Info().ReadyAt.IsZero() {
			return nil
		}
		return true
	}
	return &whileHere{list: a.processes.List, key: ready, open: a.servePool,
		failure: "cannot poll the task queue of a pool", retry: poolQueueRetry, linger: poolQueueLinger, log: a.log,
		wake: make(chan struct{}, 1), held: map[string]*held{}}
}

// servePool polls the task queue of a pool until stop is called. stop waits for the calls in progress.
func (a *Agent) servePool(pool string, _ *process.Process) (stop func(), err error) {
	slots := newExecuteSlots(pool, a.gateway.FreeSlots)
	poller := a.newActivityWorker(api.PoolQueue(pool), slots, defaultPollers, a.config.StopTimeout,
		a.traces.ofExecute()...)
	calls := &activities.Pool{Name: pool, Host: a.config.HostID, Executor: a.gateway, Temporal: a.temporal,
		Placed: slots.begin, Logger: a.log,
		Lease: func(ctx context.Context, r api.CheckoutRequest) (*api.Lease, error) {
			return a.gateway.Checkout(ctx, pool, gatewaypool.CheckoutRequest{Holder: r.Holder, RequestID: r.RequestID,
				WaitMS: checkoutPatience.Milliseconds()})
		}}
	register(poller, map[string]any{api.ActivityExecute: calls.Execute, api.ActivityCheckout: calls.Checkout})
	if err := poller.Start(); err != nil {
		return nil, fmt.Errorf("poll %s: %w", api.PoolQueue(pool), err)
	}
	return poller.Stop, nil
}

// leaseActivities are those about workflows' leases on workers of this host.
func (a *Agent) leaseActivities() map[string]any {
	calls := &activities.Pool{Host: a.config.HostID, Executor: a.gateway, Temporal: a.temporal, Logger: a.log,
		Placed: func() (ended func()) { return func() {} }}
	leases := &activities.Leases{
		Clients: a.temporal,
		Renew: func(ctx context.Context, id string) error {
			_, err := a.gateway.Renew(ctx, id, lease.Operator, 0)
			return err
		},
		Return: func(ctx context.Context, r api.CheckinRequest) error {
			_, err := a.gateway.Checkin(ctx, r.LeaseID, lease.Operator, r.Outcome, r.Error)
			return err
		},
		InUse: func(l api.Lease) bool {
			inUse := a.gateway.Lease(l.Worker, l.Incarnation)
			return inUse != nil && inUse.ID == l.ID
		},
	}
	return map[string]any{api.ActivityExecute: calls.Execute, api.ActivityHoldLease: leases.HoldLease,
		api.ActivityCheckin: leases.Checkin}
}

// startWorkflowWorker serves workflows.
func (a *Agent) startWorkflowWorker(ctx context.Context, roster *activities.Roster) error {
	interceptors := workflows.Interceptors(a.client.DataConverter(), a.emitOfWorkflow)
	flow := a.newWorker(api.TaskQueue, sdkworker.Options{
		LocalActivityWorkerOnly: true,
		Interceptors:            append(interceptors, a.traces.ofExecute()...),
		DeploymentOptions:       a.config.Deployment.options(),
	})
	workflows.Register(flow)
	flow.RegisterActivityWithOptions(roster.PoolRoster, activity.RegisterOptions{Name: api.ActivityPoolRoster})
	flow.RegisterActivityWithOptions(roster.ScalePool, activity.RegisterOptions{Name: api.ActivityScale})
	a.serving = append(a.serving, flow)
	if err := startPolling(flow); err != nil || !a.config.Deployment.versioned() {
		return err
	}
	return a.config.Deployment.register(ctx, a.temporal.WorkerDeploymentClient(), a.log)
}

// emitOfWorkflow emits an event of a workflow task that this agent has run, and counts transitions.
func (a *Agent) emitOfWorkflow(eventType, source string, at time.Time, data any) {
	if t, is := data.(api.TransitionEvent); is {
		a.transitions.Count(api.SourcePool(source), t.Transition, time.Now())
	}
	a.events.Emit(eventType, source, at, data)
}
