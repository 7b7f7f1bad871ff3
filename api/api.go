// Package api holds what every part of Tempool shares: the names of workflows, task queues and messages, the shapes of
// the messages, and the coded errors.
//
// A pool is a named set of worker slots with one spec. A worker is one slot: a durable workflow that lives through many
// operating-system processes, its incarnations. A lease is the only right to use a worker.
//
// Every payload is JSON with snake_case keys, so any Temporal SDK and the temporal command line can talk to a worker.
package api

// Workflow types.
const (
	WorkflowPool   = "Pool"
	WorkflowWorker = "Worker"
	// WorkflowExecute makes one call of a pool by the activity of the same name, for callers that can only start
	// workflows.
	WorkflowExecute = "Execute"
	// The session workflows move sessions between workers: one session, all of a worker, or as many as a distribution
	// requires.
	WorkflowMigrateSession    = "MigrateSession"
	WorkflowEvacuateWorker    = "EvacuateWorker"
	WorkflowRebalanceSessions = "RebalanceSessions"
)

// TaskQueue carries the workflow tasks of all pools and workers.
const TaskQueue = "tempool"

// DefaultPlacement is the placement label of a spec without one.
const DefaultPlacement = "default"

// Search attributes, all of type Keyword. They change with a worker's life, but not between ready and busy.
const (
	SearchAttributePool   = "TempoolPool"
	SearchAttributeState  = "TempoolState"
	SearchAttributeHealth = "TempoolHealth"
	SearchAttributeHost   = "TempoolHost"
)

// SearchAttributes lists every search attribute that Tempool uses.
func SearchAttributes() []string {
	return []string{SearchAttributePool, SearchAttributeState, SearchAttributeHealth, SearchAttributeHost}
}

// Updates of a worker. Checkout and checkin are also signals with the same names and payloads.
const (
	UpdateCheckout = "checkout"
	UpdateRenew    = "renew"
	UpdateCheckin  = "checkin"
)

// Signals of a worker.
const (
	SignalCheckout = "checkout"
	SignalCheckin  = "checkin"
	// SignalOrder has a worker do what an operator or the pool wants of it: Order. The kinds of orders are signals, too,
	// for people; a worker takes those that arrive together with others in no particular order.
	SignalOrder         = "order"
	SignalDrain         = "drain"
	SignalStop          = "stop"
	SignalSuspend       = "suspend"
	SignalResume        = "resume"
	SignalRestart       = "restart"
	SignalForceContinue = "force-continue-as-new"
	// SignalWithdrawCheckout withdraws a checkout whose caller left without the answer: Withdrawal.
	SignalWithdrawCheckout = "withdraw-checkout"
	// SignalEnd is how a pool removes a worker: the worker drains, stops its process, and its workflow completes.
	SignalEnd = "end"
	// SignalRotationGrant answers rotation-request. SignalStartsPaused and SignalStartPermitted throttle a worker's
	// starts.
	SignalRotationGrant  = "rotation-grant"
	SignalStartsPaused   = "starts-paused"
	SignalStartPermitted = "start-permitted"
	// SignalLimitsApplied reports the limits that a running process was given: LimitsApplied.
	SignalLimitsApplied = "limits-applied"
	// SignalProcessEvents reports what the host has observed of the worker's processes: ProcessEvents.
	SignalProcessEvents = "process-events"
	// SignalEpochEnded reports that an agent has ended or is lost, and its processes with it: EpochEnded.
	SignalEpochEnded = "epoch-ended"
)

// Queries of a worker.
const (
	QueryState   = "state"
	QueryMetrics = "metrics"
	QueryHistory = "history"
	QuerySpec    = "spec"
)

// Updates, signals and queries of a pool.
const (
	UpdateScale         = "scale"
	UpdateApply         = "apply"
	UpdateRestart       = "restart"
	UpdateDrain         = "drain"
	UpdateStop          = "stop"
	UpdateEvacuate      = "evacuate"
	UpdateHaltRollout   = "halt-rollout"
	SignalWorkerChanged = "worker-changed"
	// Agents report the processes that start and become ready: ProcessesStarted.
	SignalProcessesStarted = "processes-started"
	// Workers send these to request the replacement of their process and to report its end.
	SignalRotationRequest = "rotation-request"
	SignalRotationDone    = "rotation-done"
	SignalStartRequested  = "start-requested"
	// Agents send these to report events on their hosts: FilesChanged, MemoryPressure, SessionStoreClaim.
	SignalFilesChanged        = "files-changed"
	SignalMemoryPressure      = "memory-pressure"
	SignalSessionStoreClaimed = "session-store-claimed"
	// Gateways and clients report the demand for a pool whose size follows it: Demand.
	SignalDemand = "demand"
	QueryStatus  = "status"
	QueryReport  = "report"
)

// QueryProgress queries a session workflow for its SessionProgress.
const QueryProgress = "progress"

// Activities. Start and AwaitCapacity run on a placement queue, Execute and Checkout on the pool's queue, ReserveWorker
// on the sweeper's, PoolRoster and Scale as local activities, all others on the queue of the host that has the process,
// as do Execute under a lease, HoldLease and Checkin.
const (
	ActivityAwaitCapacity = "AwaitCapacity"
	ActivityStart         = "Start"
	ActivityWatch         = "Watch"
	ActivityProbe         = "Probe"
	ActivityDrain         = "Drain"
	ActivityStop          = "Stop"
	ActivityRebalance     = "Rebalance"
	ActivityReset         = "Reset"
	ActivitySuspend       = "Suspend"
	ActivityResume        = "Resume"
	ActivityExecute       = "Execute"
	// Activities of users' workflows, which lease a worker, keep the lease, and return it.
	ActivityCheckout  = "Checkout"
	ActivityHoldLease = "HoldLease"
	ActivityCheckin   = "Checkin"
	// Activities of the session workflows.
	ActivityPoolRoster          = "PoolRoster"
	ActivityReserveWorker       = "ReserveWorker"
	ActivitySessionBindings     = "SessionBindings"
	ActivityReleaseSessions     = "ReleaseSessions"
	ActivityBindSessions        = "BindSessions"
	ActivityUnbindSessions      = "UnbindSessions"
	ActivityLoadSessions        = "LoadSessions"
	ActivityExcludeFromSessions = "ExcludeFromSessions"
)

// Hooks are optional methods of a worker. The session hooks are called with a session's id, before the session leaves
// the worker and after it has arrived; the reset hook without arguments, after a lease has expired (lease.on_expiry =
// "reset").
const (
	HookSessionRelease = "session.release"
	HookSessionLoad    = "session.load"
	HookLeaseReset     = "lease.reset"
	HookSuspend        = "worker.suspend"
	HookResume         = "worker.resume"
)
