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
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/gateway/ui"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/sessions/host"
	"github.com/tempool/tempool/worker/metrics"
)

// Agent is a running agent. The program that hosts one executes itself again as the reaper and launchers of its
// workers; they run no main function, but perhaps some initializers.
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
	stores     *host.Stores
	hostCalls  *host.Calls
	// sessionStats count what the stores do.
	sessionStats *metrics.SessionStats
	slots        *placementSlots
	metrics      *metrics.Metrics
	poolQueues   *whileHere
	outbox       *outbox
	host         *activities.Host
	events       *events.Log
	// transitions counts those of the workflow tasks that this agent runs.
	transitions *metrics.Transitions
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
	polling        context.Context // of poolQueues; stopPolling ends it, before background
	stopPolling    context.CancelFunc
	polled         sync.WaitGroup // by poolQueues
	failed         chan error     // the first fatal error of a Temporal worker
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
		transitions: metrics.NewTransitions(),
	}
	a.background, a.stopBackground = context.WithCancel(context.WithoutCancel(ctx))
	a.polling, a.stopPolling = context.WithCancel(a.background)
	a.traces = newTraces(ctx, config.Tracer, config.HostID, instance, logger)
	if a.webhook, err = events.NewWebhook(a.events, config.Webhook, config.HostID, logger); err != nil {
		connected.Close()
		a.traces.shutdown()
		return nil, err
	}
	if err := a.start(ctx, sdk); err != nil {
		a.abandon(ctx.Err() != nil)
		return nil, err
	}
	logger.Info("agent started", "labels", config.Labels, "capacity", config.Capacity, "gateway", a.gateway.Endpoint(),
		"state_dir", config.StateDir)
	return a, nil
}

// start makes the parts of the agent, from the processes up to what others see of it. The workflows come first: the
// host's own needs them, and processes that are kept survive if Temporal does not answer.
func (a *Agent) start(ctx context.Context, sdk *metrics.SDK) error {
	control, roster := lease.ControlOf(a.client), rosterOf(a.client)
	if err := a.startWorkflowWorker(ctx, roster); err != nil {
		return err
	}
	if err := a.openProcesses(ctx, control); err != nil {
		return err
	}
	if err := a.openGateway(control, sdk); err != nil {
		return err
	}
	if err := a.join(ctx); err != nil {
		return err
	}
	a.report.Store(a.newReport())
	if err := a.startActivityWorkers(); err != nil {
		return err
	}
	if err := a.startSweeper(ctx, roster); err != nil {
		return err
	}
	a.runBackground(control)
	return nil
}

// rosterOf is what any agent can ask of pools and their workers.
func rosterOf(c *tempool.Client) *activities.Roster {
	return &activities.Roster{
		Status: lease.ControlOf(c).Status,
		State: func(ctx context.Context, pool string, slot int) (api.WorkerState, error) {
			return c.Pool(pool).State(ctx, slot)
		},
		InFlight: func(ctx context.Context, pool string) (map[int]int, error) {
			roster, err := c.Pool(pool).Roster(ctx)
			inFlight := map[int]int{}
			for _, w := range roster.Workers {
				if _, slot, err := api.ParseWorkerName(w.Worker); err == nil {
					inFlight[slot] = w.InFlight
				}
			}
			return inFlight, err
		},
		Checkout: c.CheckoutWorker,
		Scale: func(ctx context.Context, pool string, r api.ScaleRequest) (api.ScaleResult, error) {
			return c.Pool(pool).ScaleTo(ctx, r)
		},
	}
}

// openProcesses makes what runs processes on this host and serves their host calls.
func (a *Agent) openProcesses(ctx context.Context, control lease.Control) (err error) {
	a.sessionStats = metrics.NewSessionStats()
	a.stores = host.New(a.config.HostID, a.config.StateDir, a.log,
		host.Pools{Status: control.Status, List: control.ListPools, Claim: a.claimSessions},
		&host.Observer{HostID: a.config.HostID, Stats: a.sessionStats, Emit: a.events.Emit})
	a.hostCalls = host.NewCalls(a.stores)
	if a.processes, err = process.Open(ctx, process.Config{
		StateDir: a.config.StateDir, HostID: a.config.HostID, Logger: a.log, HostCall: a.traces.hostCalls(a.hostCalls.Serve),
		TakeOver: a.config.KeepProcesses,
		LogBytes: a.config.LogBytes, TotalLogBytes: a.config.LogBytes * int64(a.config.Capacity), Functions: a.functions,
	}); err != nil {
		return err
	}
	a.hostCalls.Find = a.processes.Get
	a.poolQueues = a.newPoolQueues()
	a.host = &activities.Host{
		ID: a.config.HostID, Processes: a.processes, Temporal: a.temporal, Admit: a.admit, Promise: a.slots.promise,
		Exhausted: a.slots.pause, Started: a.processStarted, Stopping: a.stopping, Logger: a.log,
		TraceStart: a.traces.start,
		MemoryTotal: func() (int64, error) {
			memory, err := a.readMemory()
			return memory.TotalBytes, err
		},
	}
	return a.stores.ResumeCopy()
}

// claimSessions makes this host the owner of a pool's local session store; see host.Pools.
func (a *Agent) claimSessions(ctx context.Context, pool string) error {
	err := a.temporal.SignalWorkflow(ctx, api.PoolWorkflowID(pool), "", api.SignalSessionStoreClaimed,
		api.SessionStoreClaim{Host: a.config.HostID})
	switch {
	case isNotFound(err):
		return api.Errorf(api.CodePoolNotFound, "no pool %s is running", pool)
	case err != nil:
		return fmt.Errorf("claim the session store of pool %s: %w", pool, err)
	}
	return nil
}

func (a *Agent) readMemory() (hostMemory, error) { return readHostMemory(a.config.MemoryRoot) }

// openGateway makes the gateway and the metrics, which do not serve yet.
func (a *Agent) openGateway(control lease.Control, sdk *metrics.SDK) (err error) {
	if a.gateway, err = gateway.New(gateway.Config{
		Config: pool.Config{HostID: a.config.HostID, Control: control, Processes: a.processes, Logger: a.log,
			Score: a.host.Score, Affinity: a.stores.Affinity, Unhealthy: a.host.CallsFail, Events: a.events,
			Tracer: a.traces.tracer},
		Listen: a.config.Listen, Socket: filepath.Join(a.config.StateDir, SocketName), Limits: a.config.Limits,
		Sessions: a.stores, Copies: a.stores, Logs: a.processes.Logs(), Samples: a.host.RecentSamples,
		Fleet: ui.FleetOf(a.client), Namespace: a.client.Namespace(), TemporalUI: a.config.TemporalUI,
		Security: a.config.Security, InWorker: a.processes.Contains, Hosts: a.gatewaysOfHosts,
	}); err != nil {
		return err
	}
	a.metrics = metrics.New(metrics.Config{
		HostID: a.config.HostID, Capacity: a.config.Capacity, Gateway: a.gateway, Processes: a.processes,
		SDK: sdk, Logger: a.log, Events: a.events,
		Status: control.Status, Assessment: a.host.Assessment, HistoryLength: a.client.HistoryLength,
		Webhook: a.webhook.Delivery, Spans: a.traces.counts(),
		Epoch: func() int64 { return a.membership.epoch() }, LogLinesDropped: a.processes.Logs().Dropped,
		Transitions: a.transitions,
		Sessions:    a.sessionStats, LiveSessions: a.stores.LiveSessions,
	})
	a.gateway.Handle("GET /metrics", a.metrics.Handler())
	a.host.DataPlane, a.host.Observer = a.gateway, a.metrics
	return nil
}

// admit refuses a start for which this host is not the right one.
func (a *Agent) admit(ctx context.Context, r api.StartRequest) error {
	if a.slots.isDraining() {
		return api.Errorf(api.CodeNoWorkers, "host %s is drained and takes no workers; tempool hosts undrain %[1]s ends that",
			a.config.HostID)
	}
	return a.stores.Admit(ctx, r)
}

// join joins the host's workflow with the processes that were taken over. The gateway serves when it returns.
func (a *Agent) join(ctx context.Context) error {
	a.membership = &membership{
		client: a.client, announce: a.client.JoinHost, hostID: a.config.HostID, hint: a.config.OtherHostID,
		newWorker: a.newEpochWorker, report: a.heartbeat, remember: a.rememberEpoch, lost: a.killAll,
		drain: a.slots.drain, fail: a.fail, log: a.log,
		request: api.JoinRequest{
			Instance: a.instance, StateID: a.processes.StateID(), Last: a.lastEpoch(), Labels: a.config.Labels,
			Capacity: a.config.Capacity, Machine: machine(),
		},
	}
	a.outbox = newOutbox(signalWith(a.temporal, a.client.Namespace(), a.identity, a.client.DataConverter()),
		func() api.ProcessesStarted {
			return api.ProcessesStarted{Host: a.config.HostID, Epoch: a.membership.epoch(), Endpoint: a.gateway.Endpoint()}
		}, a.log)
	a.host.Epoch, a.host.Notify, a.host.Announce = a.membership.epoch, a.outbox.notify, a.outbox.announce
	serving, err := a.takeOver()
	if err != nil {
		return err
	}
	a.polled.Go(func() { a.poolQueues.run(a.polling) })
	if err := a.membership.start(ctx); err != nil {
		return err
	}
	if kept := a.processes.TakenOver(); len(kept) > 0 { // their workers learn of this agent now that it has joined
		a.goroutines.Go(func() { a.host.EndUnclaimed(a.background, kept, api.ClaimTimeout) })
	}
	if serving {
		return nil
	}
	return a.gateway.Start()
}

// runBackground runs what watches this host until the agent stops.
func (a *Agent) runBackground(control lease.Control) {
	j := &janitor{temporal: a.temporal, control: control, processes: a.processes, log: a.log}
	changed := func(pool, host string, files []string) {
		a.processes.ReplaceTemplates(pool) // before its workers restart
		a.outbox.changed(pool, host, files)
	}
	files := newFileWatches(changed, a.processes, a.config.HostID, a.log)
	demand := newDemandReporter(a.config.HostID, a.gateway.Demand, control.Status, a.membership.epoch, a.outbox.want)
	pressure := newPressureMonitor(a.readMemory, a.outbox.pressed, a.processes, a.config.HostID, a.log)
	pressure.freeMemory, pressure.decided = a.stores.FreeMemory, a.metrics.Decided
	run := []func(context.Context){j.run, a.stores.Sweep, files.run, demand.run, pressure.run}
	if a.webhook != nil {
		run = append(run, a.webhook.Run)
	}
	for _, background := range run {
		a.goroutines.Go(func() { background(a.background) })
	}
}

// processStarted enters a process that this agent has started.
func (a *Agent) processStarted(p *process.Process) {
	a.processReady(p)
	a.gateway.Open(p)
}

// processReady counts a process that became ready.
func (a *Agent) processReady(p *process.Process) {
	a.slots.add(p)
	sleep.Wake(a.poolQueues.wake)
	a.stores.Add(p)
	p.AfterEnd(func() {
		if !p.HandedOver() {
			a.metrics.Ended(p)
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
	w := a.newWorker(queue, epochOptions(a.config.Capacity))
	register(w, map[string]any{
		api.ActivityWatch: a.host.Watch, api.ActivityProbe: a.host.Probe, api.ActivityDrain: a.host.Drain,
		api.ActivityReset:   a.host.Reset,
		api.ActivityStop:    activities.Heartbeating(a.temporal, a.host.Stop),
		api.ActivitySuspend: activities.Heartbeating(a.temporal, a.host.Suspend),
		api.ActivityResume:  activities.Heartbeating(a.temporal, a.host.EndSuspension),
	})
	return w
}

// epochOptions are those of the worker of an epoch. The SDK gives up a heartbeat after half the throttle interval: a
// short one would lose those of a large host on a slow machine.
func epochOptions(capacity int) sdkworker.Options {
	return sdkworker.Options{
		DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: api.HostHeartbeatInterval,
		MaxConcurrentActivityExecutionSize: 4*capacity + 50,
	}
}

// startActivityWorkers serves what concerns the host as a whole, whatever its epoch, and the placement queues.
func (a *Agent) startActivityWorkers() error {
	moving := &activities.Sessions{Host: a.config.HostID, Bindings: a.stores.Affinity, Move: a.stores.MoveSession,
		Hooks: a.gateway, Temporal: a.temporal, HasReadyProcess: a.hasReadyProcess, SessionExists: a.stores.SessionExists}
	own := a.newWorker(api.HostQueue(a.config.HostID),
		sdkworker.Options{DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: heartbeatThrottle})
	register(own, map[string]any{
		api.ActivityRebalance:       a.host.Rebalance,
		api.ActivitySessionBindings: moving.SessionBindings, api.ActivityReleaseSessions: moving.ReleaseSessions,
		api.ActivityLoadSessions: moving.LoadSessions, api.ActivityBindSessions: moving.BindSessions,
		api.ActivityUnbindSessions: moving.UnbindSessions, api.ActivityExcludeFromSessions: moving.ExcludeFromSessions,
	})
	register(own, a.leaseActivities())
	for _, queue := range startQueues(a.config.Labels, a.functions) {
		place := a.newActivityWorker(queue, a.slots, placementPollers, workerStopTimeout)
		place.RegisterActivityWithOptions(a.host.Start, activity.RegisterOptions{Name: api.ActivityStart})
		place.RegisterActivityWithOptions(a.host.AwaitCapacity, activity.RegisterOptions{Name: api.ActivityAwaitCapacity})
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
