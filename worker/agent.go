package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/activities/sweeper"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/gateway/ui"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/worker/metrics"
)

// Agent is a running agent. The main of a program that hosts one must call process.RunReaperIfAsked first.
type Agent struct {
	config     Config
	functions  map[string]process.Function
	log        *slog.Logger
	instance   string // random, new with each start
	identity   string // of requests to Temporal
	client     *tempool.Client
	temporal   client.Client // the client's connection
	membership *membership
	processes  *process.Supervisor
	gateway    *gateway.Gateway
	stores     *stores
	hostCalls  *hostCalls
	slots      *placementSlots
	metrics    *metrics.Metrics
	poolQueues *poolQueues
	outbox     *outbox
	demand     *demandReporter
	host       *activities.Host
	events     *events.Log
	// transitions counts those of the workflow tasks that this agent runs.
	transitions metrics.Transitions
	webhook     *events.Webhook
	traces      *traces

	placement []sdkworker.Worker // poll for new processes; stopped first
	serving   []sdkworker.Worker // poll for workflows and this host's activities, until the last process has ended
	sweeper   sdkworker.Worker   // polls for what any agent can do for the namespace; nil until it starts

	report         atomic.Pointer[api.AgentReport] // nil until the gateway serves
	stopping       chan struct{}                   // closed when Stop begins
	goroutines     sync.WaitGroup
	background     context.Context // of goroutines; stopBackground ends it before the remaining processes are killed
	stopBackground context.CancelFunc
	failed         chan error // the first fatal error of a Temporal worker
	hasFailed      atomic.Bool
	stopOnce       sync.Once
	stopErr        error
}

// gatewaysOfHosts lists the base URLs of all hosts' gateways.
func (a *Agent) gatewaysOfHosts(ctx context.Context) (endpoints []string, err error) {
	hosts, err := a.client.Hosts(ctx)
	for _, host := range hosts {
		if host.Heartbeat.Agent != nil {
			endpoints = append(endpoints, host.Heartbeat.Agent.Endpoint)
		}
	}
	return endpoints, err
}

// Run starts an agent, waits until ctx ends or the agent fails, and stops it gracefully.
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

// Start starts an agent, which serves when Start returns. The caller must call Stop.
func Start(ctx context.Context, config Config) (*Agent, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	logger := config.Logger.With("host", config.HostID)
	sdk := metrics.NewSDK()
	instance := uuid.NewString()
	identity := "agent@" + config.HostID + "/" + instance
	connected, err := tempool.Dial(ctx, tempool.Options{
		Address: config.Address, Namespace: config.Namespace, Identity: identity, Logger: log.NewStructuredLogger(logger),
		Metrics: sdk.Handler(), Payloads: config.Payloads,
	})
	if err != nil {
		return nil, err
	}
	a := &Agent{
		config: config, functions: registered(), log: logger, instance: instance, identity: identity, client: connected,
		temporal: connected.Temporal(), slots: newPlacementSlots(config.Capacity),
		stopping: make(chan struct{}), failed: make(chan error, 1), events: events.New(instance),
	}
	a.background, a.stopBackground = context.WithCancel(context.WithoutCancel(ctx))
	a.poolQueues = newPoolQueues(logger, a.servePool)
	a.traces = newTraces(ctx, config.Tracer, config.HostID, instance, logger)
	if a.webhook, err = events.NewWebhook(a.events, config.Webhook, config.HostID, logger); err != nil {
		connected.Close()
		a.traces.shutdown()
		return nil, err
	}
	if err := a.start(ctx, sdk); err != nil {
		a.cleanUp(ctx.Err() != nil)
		return nil, err
	}
	logger.Info("agent started", "labels", config.Labels, "capacity", config.Capacity, "gateway", a.gateway.Endpoint(),
		"state_dir", config.StateDir)
	return a, nil
}

func (a *Agent) start(ctx context.Context, sdk *metrics.SDK) (err error) {
	control := lease.ControlOf(a.client)
	observer := &sessionObserver{hostID: a.config.HostID, stats: metrics.NewSessionStats(), emit: a.events.Emit}
	a.stores = newStores(a.config.HostID, a.config.StateDir, a.log, control.Workers,
		poolSessionOwner{a.temporal, control.Status, a.config.HostID}, observer)
	a.hostCalls = newHostCalls(a.stores)
	roster := &activities.Roster{
		Status: control.Status,
		State: func(ctx context.Context, pool string, slot int) (api.WorkerState, error) {
			return a.client.Pool(pool).State(ctx, slot)
		},
		InFlight: func(ctx context.Context, pool string) (map[int]int, error) {
			roster, err := a.client.Pool(pool).Roster(ctx)
			inFlight := map[int]int{}
			for _, w := range roster.Workers {
				if _, slot, err := api.ParseWorkerName(w.Worker); err == nil {
					inFlight[slot] = w.InFlight
				}
			}
			return inFlight, err
		},
		Checkout: a.client.CheckoutWorker,
		Scale: func(ctx context.Context, pool string, r api.ScaleRequest) (api.ScaleResult, error) {
			return a.client.Pool(pool).ScaleTo(ctx, r)
		},
	}
	// The host's own workflow needs it; first, since processes that are kept survive if Temporal does not answer it.
	if err := a.startWorkflowWorker(ctx, roster); err != nil {
		return err
	}
	if a.processes, err = process.Open(ctx, process.Config{
		StateDir: a.config.StateDir, HostID: a.config.HostID, Logger: a.log, HostCall: a.traces.hostCalls(a.hostCalls.serve),
		TakeOver: a.config.KeepProcesses,
		LogBytes: a.config.LogBytes, TotalLogBytes: a.config.LogBytes * int64(a.config.Capacity), Functions: a.functions,
	}); err != nil {
		return err
	}
	a.hostCalls.find = a.processes.Get
	if err := a.stores.resumeCopy(); err != nil {
		return err
	}
	host := &activities.Host{
		ID: a.config.HostID, Processes: a.processes, Temporal: a.temporal, Admit: a.stores.admit, Promise: a.slots.promise,
		Exhausted: a.slots.pause, Started: a.processStarted, Stopping: a.stopping, Logger: a.log,
		TraceStart: a.traces.start,
	}
	a.host = host
	readMemory := func() (hostMemory, error) { return readHostMemory(a.config.MemoryRoot) }
	host.MemoryTotal = func() (int64, error) {
		memory, err := readMemory()
		return memory.TotalBytes, err
	}
	bindings := observedBindings{a.stores.affinity, observer}
	if a.gateway, err = gateway.New(gateway.Config{
		Config: pool.Config{HostID: a.config.HostID, Control: control, Processes: a.processes, Logger: a.log,
			Score: host.Score, Affinity: bindings, Unhealthy: host.CallsFail, Events: a.events, Tracer: a.traces.tracer,
			StartSpans: a.traces.startOf},
		Listen: a.config.Listen, Socket: filepath.Join(a.config.StateDir, SocketName), Limits: a.config.Limits,
		Sessions: a.stores, Bindings: bindings, Copies: a.stores,
		Logs: a.processes.Logs(), Samples: host.RecentSamples,
		Fleet: ui.FleetOf(a.client), Namespace: a.client.Namespace(), TemporalUI: a.config.TemporalUI,
		Security: a.config.Security, InWorker: a.processes.Contains, Hosts: a.gatewaysOfHosts,
	}); err != nil {
		return err
	}
	a.metrics = metrics.New(metrics.Config{
		HostID: a.config.HostID, Capacity: a.config.Capacity, Gateway: a.gateway, Processes: a.processes,
		Affinity: a.stores.affinity, SDK: sdk, Logger: a.log,
		Status: control.Status, Assessment: host.Assessment, HistoryLength: a.client.HistoryLength,
		Webhook: a.webhook.Delivery, Spans: a.traces.counts(),
		Epoch: func() int64 { return a.membership.epoch() }, LogLinesDropped: a.processes.Logs().Dropped,
		Transitions: &a.transitions,
		Sessions:    observer.stats, LiveSessions: a.stores.liveSessions,
	})
	a.gateway.Handle("GET /metrics", a.metrics.Handler())
	host.DataPlane, host.Observer = a.gateway, &emittingObserver{Observer: a.metrics.Observer(), agent: a}
	a.membership = &membership{
		client: a.client, announce: a.client.JoinHost, hostID: a.config.HostID, hint: a.config.OtherHostID,
		newWorker: a.newEpochWorker, report: a.heartbeat, remember: a.rememberEpoch, lost: a.killAll,
		fail: a.fail, log: a.log,
		request: api.JoinRequest{
			Instance: a.instance, Lineage: a.processes.StateID(), Last: a.lastEpoch(), Labels: a.config.Labels,
			Capacity: a.config.Capacity, Machine: machine(),
		},
	}
	a.outbox = newOutbox(signalWith(a.temporal, a.client.Namespace(), a.identity, a.client.DataConverter()),
		func() api.ProcessesStarted {
			return api.ProcessesStarted{Host: a.config.HostID, Epoch: a.membership.epoch(), Endpoint: a.gateway.Endpoint()}
		}, a.log)
	host.Epoch, host.Notify, host.Announce = a.membership.epoch, a.outbox.notify, a.outbox.announce
	serving, err := a.takeOver()
	if err != nil {
		return err
	}
	if err := a.membership.start(ctx); err != nil {
		return err
	}
	a.endUnclaimed()
	if !serving {
		if err := a.gateway.Start(); err != nil {
			return err
		}
	}
	a.report.Store(a.newReport())
	moving := &activities.Sessions{Host: a.config.HostID, Bindings: bindings, Hooks: a.gateway, Temporal: a.temporal,
		HasReadyProcess: a.hasReadyProcess, SessionExists: a.stores.sessionExists}
	if err := a.startActivityWorkers(host, moving); err != nil {
		return err
	}
	sweeps := &sweeper.Sweeper{Temporal: a.temporal, Namespace: a.client.Namespace(), Logger: a.log}
	if err := a.startSweeper(ctx, sweeps, roster); err != nil {
		return err
	}
	if a.webhook != nil {
		a.goroutines.Go(func() { a.webhook.Run(a.background) })
	}
	j := &janitor{temporal: a.temporal, processes: a.processes, closed: sweeps.ClosedWorkers, log: a.log}
	a.goroutines.Go(func() { j.run(a.background) })
	a.goroutines.Go(func() { a.stores.sweep(a.background) })
	files := newFileWatches(a.outbox.changed, a.processes, a.config.HostID, a.log)
	a.goroutines.Go(func() { files.run(a.background) })
	a.demand = newDemandReporter(a.config.HostID, a.gateway.Demand, control.Status, a.membership.epoch, a.outbox.want)
	a.goroutines.Go(func() { a.demand.run(a.background) })
	pressure := newPressureMonitor(readMemory, a.outbox.pressed, a.processes, a.config.HostID, a.log)
	pressure.freeMemory, pressure.decided = a.stores.freeMemory, a.metrics.Observer().Decided
	a.goroutines.Go(func() { pressure.run(a.background) })
	return nil
}

// processStarted enters a process that this agent has started.
func (a *Agent) processStarted(p *process.Process) {
	a.processReady(p)
	a.gateway.Open(p)
	a.emitStarted(p)
}

// processReady counts a process that became ready.
func (a *Agent) processReady(p *process.Process) {
	a.slots.add(p)
	a.poolQueues.add(p)
	a.stores.add(p)
	p.AfterEnd(func() {
		a.traces.forget(p.Worker(), p.Incarnation())
		if !p.HandedOver() {
			a.metrics.Ended(p.Worker(), p.Exit().Outcome())
			a.emitEnded(p)
		}
	})
}

// hasReadyProcess reports whether a worker has a ready process on this host.
func (a *Agent) hasReadyProcess(worker string) bool {
	return slices.ContainsFunc(a.processes.List(), func(p *process.Process) bool {
		return p.Worker() == worker && !p.HasEnded() && !p.Info().ReadyAt.IsZero()
	})
}

func startPolling(workers ...sdkworker.Worker) error {
	for _, w := range workers {
		err := w.Start()
		if missing, is := errors.AsType[*serviceerror.NamespaceNotFound](err); is {
			return api.Errorf(api.CodeInvalid,
				"Temporal has no namespace %q; create it with: temporal operator namespace create --retention 72h %[1]s; or set "+
					"--namespace: %w",
				missing.Namespace, err)
		}
		if err != nil {
			return fmt.Errorf("poll Temporal: %w", err)
		}
	}
	return nil
}

// killAll kills all processes of this host, whose workers may have started elsewhere, and waits until they are gone.
func (a *Agent) killAll() {
	killed := a.processes.List()
	for _, p := range killed {
		a.log.Warn("killing a process of a lost epoch", "worker", p.Worker(), "incarnation", p.Incarnation())
		p.Kill("host " + a.config.HostID + " was lost, and its agent has joined it again")
	}
	for _, p := range killed {
		select {
		case <-p.Done():
		case <-a.background.Done():
			return
		}
	}
}

// newEpochWorker serves the queue of an epoch: everything about one process.
func (a *Agent) newEpochWorker(queue string) sdkworker.Worker {
	w := a.newWorker(queue, sdkworker.Options{
		DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: api.HostHeartbeatInterval,
		MaxConcurrentActivityExecutionSize: 4*a.config.Capacity + 50,
	})
	register(w, map[string]any{
		api.ActivityWatch: a.host.Watch, api.ActivityProbe: a.host.Probe, api.ActivityDrain: a.host.Drain,
		api.ActivityStop: a.host.Stop, api.ActivityReset: a.host.Reset, api.ActivitySuspend: a.host.Suspend,
		api.ActivityResume: a.host.EndSuspension,
	})
	return w
}

// startActivityWorkers serves what concerns the host as a whole, whatever its epoch, and the placement queues.
func (a *Agent) startActivityWorkers(host *activities.Host, moving *activities.Sessions) error {
	own := a.newWorker(api.HostQueue(a.config.HostID),
		sdkworker.Options{DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: heartbeatThrottle})
	register(own, map[string]any{
		api.ActivityApplyLimits: host.ApplyLimits, api.ActivityCollectGarbage: host.CollectGarbage,
		api.ActivityRebalance:       host.Rebalance,
		api.ActivitySessionBindings: moving.SessionBindings, api.ActivityReleaseSessions: moving.ReleaseSessions,
		api.ActivityLoadSessions: moving.LoadSessions, api.ActivityBindSessions: moving.BindSessions,
		api.ActivityUnbindSessions: moving.UnbindSessions, api.ActivityExcludeFromSessions: moving.ExcludeFromSessions,
	})
	for _, queue := range startQueues(a.config.Labels, a.functions) {
		place, err := a.newActivityWorker(queue, a.slots, placementPollers, workerStopTimeout)
		if err != nil {
			return err
		}
		place.RegisterActivityWithOptions(host.Start, activity.RegisterOptions{Name: api.ActivityStart})
		place.RegisterActivityWithOptions(host.AwaitCapacity, activity.RegisterOptions{Name: api.ActivityAwaitCapacity})
		a.placement = append(a.placement, place)
	}
	a.serving = append(a.serving, own)
	return startPolling(append([]sdkworker.Worker{own}, a.placement...)...)
}

// Endpoint returns the base URL of the agent's gateway.
func (a *Agent) Endpoint() string { return a.gateway.Endpoint() }

// Gateway returns the agent's gateway, for programs that host an agent and call it in process.
func (a *Agent) Gateway() *gateway.Gateway { return a.gateway }

// Failed delivers the first fatal error of the agent.
func (a *Agent) Failed() <-chan error { return a.failed }
