package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/worker/metrics"
	"github.com/tempool/tempool/workflows"
)

// Agent is a running agent. The program that hosts one calls process.RunReaperIfAsked first in its main.
type Agent struct {
	config    Config
	log       *slog.Logger
	temporal  client.Client
	processes *process.Supervisor
	gateway   *gateway.Gateway
	stores    *stores
	hostCalls *hostCalls
	room      *room
	metrics   *metrics.Metrics
	pools     *pools

	placement []sdkworker.Worker // take new processes; stopped first
	serving   []sdkworker.Worker // workflows and this host's own queue; needed until the last process has ended

	stopping   chan struct{} // closed when a stop has begun
	background sync.WaitGroup
	life       context.Context // of what runs in the background; ended by endLife before the last processes are
	endLife    context.CancelFunc
	failed     chan error // the first fatal error of a Temporal worker
	stopOnce   sync.Once
	stopErr    error
}

// Run starts an agent, waits until ctx ends or the agent fails, and stops it in good order.
func Run(ctx context.Context, config Config) error {
	agent, err := Start(ctx, config)
	if err != nil {
		return err
	}
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-agent.failed:
	}
	return errors.Join(failure, agent.Stop())
}

// Start starts an agent; it serves when Start returns. Stop it when done.
func Start(ctx context.Context, config Config) (*Agent, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	logger := config.Logger.With("host", config.HostID)
	sdk := metrics.NewSDK()
	temporal, namespace, err := tempool.DialTemporal(ctx, tempool.Options{
		Address: config.Address, Namespace: config.Namespace, Identity: identity(config.HostID), Logger: log.NewStructuredLogger(logger),
		Metrics: sdk.Handler(),
	})
	if err != nil {
		return nil, err
	}
	a := &Agent{
		config: config, log: logger, temporal: temporal, room: newRoom(config.Capacity),
		stopping: make(chan struct{}), failed: make(chan error, 1),
	}
	a.life, a.endLife = context.WithCancel(context.WithoutCancel(ctx))
	a.pools = newPools(logger, a.servePool)
	if err := a.start(ctx, namespace, sdk); err != nil {
		a.abandon()
		return nil, err
	}
	logger.Info("agent serves", "labels", config.Labels, "capacity", config.Capacity, "gateway", a.gateway.Endpoint(), "state_dir", config.StateDir)
	return a, nil
}

func (a *Agent) start(ctx context.Context, namespace string, sdk *metrics.SDK) (err error) {
	control := gateway.ControlOf(tempool.NewClient(a.temporal, namespace))
	a.stores = newStores(a.config.HostID, a.config.StateDir, a.log, control.Workers, poolClaims{a.temporal, control.Status, a.config.HostID})
	a.hostCalls = newHostCalls(a.stores)
	if a.processes, err = process.Open(ctx, process.Config{StateDir: a.config.StateDir, HostID: a.config.HostID, Logger: a.log, HostCall: a.hostCalls.serve}); err != nil {
		return err
	}
	a.hostCalls.find = a.processes.Get
	if err := a.stores.resumeCopy(); err != nil {
		return err
	}
	if err := awaitHost(ctx, a.temporal, a.config); err != nil {
		return err
	}
	host := &activities.Host{ID: a.config.HostID, Processes: a.processes, Admit: a.stores.admit, Started: a.started, Stopping: a.stopping, Logger: a.log}
	host.MemoryTotal = func() (int64, error) {
		look, err := a.config.HostMemory()
		return look.TotalBytes, err
	}
	if a.gateway, err = gateway.New(gateway.Config{
		HostID: a.config.HostID, Listen: a.config.Listen, Socket: filepath.Join(a.config.StateDir, SocketName), Limits: a.config.Limits,
		Control: control, Processes: a.processes, Logger: a.log, Score: host.Score, Sessions: a.stores, Copies: a.stores, Affinity: a.stores.affinity,
	}); err != nil {
		return err
	}
	a.metrics = metrics.New(metrics.Config{
		HostID: a.config.HostID, Capacity: a.config.Capacity, Gateway: a.gateway, Processes: a.processes, Affinity: a.stores.affinity, SDK: sdk, Logger: a.log,
		Status: control.Status, Score: host.Score,
	})
	a.gateway.Handle("GET /metrics", a.metrics.Handler())
	host.Plane, host.Observer = a.gateway, a.metrics.Observer()
	if err := a.gateway.Start(); err != nil {
		return err
	}
	moving := &activities.Sessions{Host: a.config.HostID, Bindings: a.stores.affinity, Hooks: a.gateway, Lives: a.lives, Kept: a.stores.kept}
	if err := a.startWorkers(host, moving, &activities.Roster{Status: control.Status}); err != nil {
		return err
	}
	j := newJanitor(a.temporal, a.processes, a.log)
	a.background.Go(func() { j.run(a.life) })
	a.background.Go(func() { a.stores.sweep(a.life) })
	files := newFileWatches(a.temporal, a.processes, a.config.HostID, a.log)
	a.background.Go(func() { files.run(a.life) })
	pressure := newPressureWatch(a.config.HostMemory, a.temporal, a.processes, a.config.HostID, a.log)
	pressure.drop, pressure.decided = a.stores.drop, a.metrics.Observer().Decided
	a.background.Go(func() { pressure.run(a.life) })
	return nil
}

// abandon undoes a start that failed half-way.
func (a *Agent) abandon() {
	for _, w := range append(a.placement, a.serving...) {
		w.Stop()
	}
	a.pools.close()
	a.endLife()
	a.background.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if a.gateway != nil {
		_ = a.gateway.Close(ctx) // the start's own error is the one to tell
	}
	if a.processes != nil {
		_ = a.processes.Close(ctx)
	}
	a.pools.wait()
	if a.stores != nil {
		a.hostCalls.wait()
		_ = a.stores.close()
	}
	a.temporal.Close()
}

// started is told of each process that has become ready.
func (a *Agent) started(p *process.Process) {
	a.room.settle(p)
	a.pools.join(p)
	a.stores.join(p)
}

// lives reports whether a worker has a process here that is ready.
func (a *Agent) lives(worker string) bool {
	return slices.ContainsFunc(a.processes.List(), func(p *process.Process) bool {
		select {
		case <-p.Done():
			return false
		default:
			return p.Worker() == worker && !p.Info().ReadyAt.IsZero()
		}
	})
}

func (a *Agent) startWorkers(host *activities.Host, moving *activities.Sessions, roster *activities.Roster) error {
	flow := a.newWorker(api.TaskQueue, sdkworker.Options{LocalActivityWorkerOnly: true})
	workflows.Register(flow)
	flow.RegisterActivityWithOptions(roster.PoolRoster, activity.RegisterOptions{Name: api.ActivityPoolRoster})

	own := a.newWorker(api.HostQueue(a.config.HostID), sdkworker.Options{
		DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: heartbeatThrottle,
		// Each process has one Watch, which takes a slot for as long as it lives, and now and then a probe, a drain, a stop.
		MaxConcurrentActivityExecutionSize: 4*a.config.Capacity + 50,
	})
	for name, run := range map[string]any{
		api.ActivityWatch: host.Watch, api.ActivityProbe: host.Probe, api.ActivityDrain: host.Drain,
		api.ActivityRecall: host.Recall, api.ActivityStop: host.Stop, api.ActivityApplyLimits: host.ApplyLimits,
		api.ActivityCollectGarbage: host.CollectGarbage, api.ActivityRebalance: host.Rebalance, api.ActivityReset: host.Reset,
		api.ActivitySessionBindings: moving.SessionBindings, api.ActivityReleaseSessions: moving.ReleaseSessions,
		api.ActivityLoadSessions: moving.LoadSessions, api.ActivityBindSessions: moving.BindSessions,
		api.ActivityUnbindSessions: moving.UnbindSessions, api.ActivityExcludeFromSessions: moving.ExcludeFromSessions,
	} {
		own.RegisterActivityWithOptions(run, activity.RegisterOptions{Name: name})
	}
	for _, label := range a.config.Labels {
		place, err := a.newActivityWorker(api.PlacementQueue(label), a.room, workerStopTimeout)
		if err != nil {
			return err
		}
		place.RegisterActivityWithOptions(host.Start, activity.RegisterOptions{Name: api.ActivityStart})
		place.RegisterActivityWithOptions(host.AwaitCapacity, activity.RegisterOptions{Name: api.ActivityAwaitCapacity})
		a.placement = append(a.placement, place)
	}
	a.serving = []sdkworker.Worker{flow, own}
	for _, w := range append(append([]sdkworker.Worker{}, a.serving...), a.placement...) {
		if err := w.Start(); err != nil {
			return fmt.Errorf("poll Temporal: %w", err)
		}
	}
	return nil
}

// Endpoint is the base URL of the agent's gateway.
func (a *Agent) Endpoint() string { return a.gateway.Endpoint() }

// Gateway is the agent's data plane, for programs that host an agent and call in process.
func (a *Agent) Gateway() *gateway.Gateway { return a.gateway }

// Failed delivers the error that ends an agent which cannot go on.
func (a *Agent) Failed() <-chan error { return a.failed }

// killTimeout is what the last processes get when the agent closes.
const killTimeout = 10 * time.Second

// Stop takes no new process, has every worker of this host drain and stop, and ends. Workflows see the shutdown as an
// interruption and place their next incarnation elsewhere. What does not end within StopTimeout is killed.
func (a *Agent) Stop() error {
	a.stopOnce.Do(func() { a.stopErr = a.stop() })
	return a.stopErr
}

func (a *Agent) stop() error {
	a.log.Info("agent stops", "processes", a.processes.Live())
	ctx, cancel := context.WithTimeout(context.Background(), a.config.StopTimeout)
	defer cancel()
	var placements sync.WaitGroup
	for _, w := range a.placement {
		placements.Go(w.Stop)
	}
	placements.Wait()
	a.pools.close()
	close(a.stopping) // every Watch returns; the workflows drain and stop their processes through this agent
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.room.wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		a.log.Warn("some processes did not end in time and are killed", "processes", a.processes.Live())
	}
	if err := a.gateway.Close(ctx); err != nil {
		a.log.Warn("the gateway was cut off", "error", err)
	}
	for _, w := range a.serving {
		w.Stop()
	}
	a.endLife()
	a.background.Wait()
	// What outlived StopTimeout has had its chance; the end itself needs a little time of its own.
	last, done := context.WithTimeout(context.Background(), killTimeout)
	defer done()
	err := a.processes.Close(last)
	<-ended
	a.pools.wait()
	a.hostCalls.wait()
	err = errors.Join(err, a.stores.close())
	a.temporal.Close()
	a.log.Info("agent has stopped")
	return err
}
