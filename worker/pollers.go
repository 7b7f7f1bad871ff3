package worker

import (
	"cmp"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
)

// heartbeatThrottle is the shortest time between two heartbeats that reach Temporal.
const heartbeatThrottle = 3 * time.Second

func (a *Agent) newWorker(queue string, options sdkworker.Options) sdkworker.Worker {
	options.WorkerStopTimeout = cmp.Or(options.WorkerStopTimeout, workerStopTimeout)
	options.OnFatalError = func(err error) {
		select {
		case a.failed <- fmt.Errorf("polling %s: %w", queue, err):
		default: // the first one is told
		}
	}
	return sdkworker.New(a.temporal, queue, options)
}

// workerStopTimeout is what activities get to end by themselves when their worker stops. By then every process has ended.
const workerStopTimeout = 10 * time.Second

// newActivityWorker makes a worker for the activities of one queue, which polls only with permits of the supplier.
func (a *Agent) newActivityWorker(queue string, supplier sdkworker.SlotSupplier, stopTimeout time.Duration) (sdkworker.Worker, error) {
	const others = 2 // slots of kinds that such a worker does not use
	fixed := make([]sdkworker.SlotSupplier, 4)
	for i := range fixed {
		var err error
		if fixed[i], err = sdkworker.NewFixedSizeSlotSupplier(others); err != nil {
			return nil, fmt.Errorf("slots: %w", err)
		}
	}
	tuner, err := sdkworker.NewCompositeTuner(sdkworker.CompositeTunerOptions{
		ActivitySlotSupplier: supplier, WorkflowSlotSupplier: fixed[0], LocalActivitySlotSupplier: fixed[1],
		NexusSlotSupplier: fixed[2], SessionActivitySlotSupplier: fixed[3],
	})
	if err != nil {
		return nil, fmt.Errorf("slots: %w", err)
	}
	return a.newWorker(queue, sdkworker.Options{
		DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: heartbeatThrottle, Tuner: tuner, DisableEagerActivities: true,
		WorkerStopTimeout: stopTimeout,
	}), nil
}

// servePool polls the task queue of a pool, until stop is called, which waits for the calls under way.
func (a *Agent) servePool(pool string) (stop func(), err error) {
	free := newExecuteSlots(pool, a.gateway.Spare)
	served, err := a.newActivityWorker(api.PoolQueue(pool), free, a.config.StopTimeout)
	if err != nil {
		return nil, err
	}
	calls := &activities.Pool{Name: pool, Host: a.config.HostID, Executor: a.gateway, Temporal: a.temporal, Placed: free.begin, Logger: a.log}
	served.RegisterActivityWithOptions(calls.Execute, activity.RegisterOptions{Name: api.ActivityExecute})
	if err := served.Start(); err != nil {
		return nil, fmt.Errorf("poll %s: %w", api.PoolQueue(pool), err)
	}
	return served.Stop, nil
}
