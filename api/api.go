// Package tempool holds the words of Tempool: the names by which workflows, task queues and messages are known to
// Temporal, the shapes of those messages, the coded errors, and the client that Go programs import.
//
// A pool is a named set of worker slots that share one spec. A worker is one slot: a durable workflow that lives through
// many operating-system processes, its incarnations. A lease is the only right to use a worker.
//
// Every payload is JSON with snake_case keys, so any Temporal SDK and the temporal command line can speak to a worker.
package api

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Workflow types.
const (
	WorkflowPool   = "Pool"
	WorkflowWorker = "Worker"
	// WorkflowExecute makes one call of a pool by the activity of the same name, for callers who can start a workflow and nothing else.
	WorkflowExecute = "Execute"
	// The session workflows move sessions from workers to workers: one, all of a worker, and so many that they are distributed as wished.
	WorkflowMigrateSession    = "MigrateSession"
	WorkflowEvacuateWorker    = "EvacuateWorker"
	WorkflowRebalanceSessions = "RebalanceSessions"
)

// TaskQueue carries the workflow tasks of every pool and worker.
const TaskQueue = "tempool"

// DefaultPlacement is the placement label of a spec that names none.
const DefaultPlacement = "default"

// Search attributes, all of type Keyword. They change with a worker's life, never between ready and busy.
const (
	SearchAttributePool   = "TempoolPool"
	SearchAttributeState  = "TempoolState"
	SearchAttributeHealth = "TempoolHealth"
	SearchAttributeHost   = "TempoolHost"
)

// SearchAttributes lists every search attribute Tempool uses.
func SearchAttributes() []string {
	return []string{SearchAttributePool, SearchAttributeState, SearchAttributeHealth, SearchAttributeHost}
}

// Updates of a worker. Checkout and checkin are also signals of the same names and shapes.
const (
	UpdateCheckout = "checkout"
	UpdateRenew    = "renew"
	UpdateCheckin  = "checkin"
)

// Signals of a worker.
const (
	SignalCheckout      = "checkout"
	SignalCheckin       = "checkin"
	SignalDrain         = "drain"
	SignalStop          = "stop"
	SignalSuspend       = "suspend"
	SignalResume        = "resume"
	SignalRestart       = "restart"
	SignalForceContinue = "force-continue-as-new"
	// SignalPoolContinues warns a worker that its pool is about to continue as new, which Temporal answers by cancelling the
	// pool's children; the next cancellation is not meant.
	SignalPoolContinues = "pool-continues"
	// SignalEnd is how a pool dismisses a worker: it drains, stops its process, and its workflow completes. Unlike a cancellation
	// it is always meant.
	SignalEnd = "end"
	// SignalRotationGrant answers rotation-request; SignalStartsHeld and SignalStartReleased govern a worker's starts.
	SignalRotationGrant = "rotation-grant"
	SignalStartsHeld    = "starts-held"
	SignalStartReleased = "start-released"
	// SignalLimitsApplied tells a worker which limits its process has been given since it started: LimitsApplied.
	SignalLimitsApplied = "limits-applied"
)

// Queries of a worker.
const (
	QueryState   = "state"
	QueryMetrics = "metrics"
	QueryHistory = "history"
)

// Updates, signals and queries of a pool.
const (
	UpdateScale         = "scale"
	UpdateApply         = "apply"
	UpdateRestart       = "restart"
	UpdateDrain         = "drain"
	UpdateStop          = "stop"
	UpdateEvacuate      = "evacuate"
	SignalWorkerChanged = "worker-changed"
	// A worker asks for leave to replace its process, and says when that is done.
	SignalRotationRequest = "rotation-request"
	SignalRotationDone    = "rotation-done"
	SignalStartRequested  = "start-requested"
	// Agents tell a pool what happens on their hosts: FilesChanged, MemoryPressure.
	SignalFilesChanged   = "files-changed"
	SignalMemoryPressure = "memory-pressure"
	// An agent tells a pool that its host keeps the pool's sessions: SessionStoreClaimed.
	SignalSessionStoreClaimed = "session-store-claimed"
	QueryStatus               = "status"
	QueryReport               = "report"
)

// Activities. Start and AwaitRoom run on a placement queue, the others on the queue of the host that holds the process.
const (
	ActivityAwaitCapacity  = "AwaitCapacity"
	ActivityStart          = "Start"
	ActivityWatch          = "Watch"
	ActivityProbe          = "Probe"
	ActivityDrain          = "Drain"
	ActivityRecall         = "Recall"
	ActivityStop           = "Stop"
	ActivityApplyLimits    = "ApplyLimits"
	ActivityCollectGarbage = "CollectGarbage"
	ActivityRebalance      = "Rebalance"
	ActivityReset          = "Reset"
	ActivityExecute        = "Execute"
	// Of the session workflows, on the queue of the host whose workers they are about. PoolRoster is a local one.
	ActivityPoolRoster          = "PoolRoster"
	ActivitySessionBindings     = "SessionBindings"
	ActivityReleaseSessions     = "ReleaseSessions"
	ActivityBindSessions        = "BindSessions"
	ActivityUnbindSessions      = "UnbindSessions"
	ActivityLoadSessions        = "LoadSessions"
	ActivityExcludeFromSessions = "ExcludeFromSessions"
)

// QueryProgress asks a session workflow how far it is: SessionProgress.
const QueryProgress = "progress"

// Hooks that a worker may offer, as methods: called with a session's id before the session leaves it, and after one has come to it; and
// without arguments after a lease has expired (lease.on_expiry = "reset").
const (
	HookSessionRelease = "session.release"
	HookSessionLoad    = "session.load"
	HookLeaseReset     = "lease.reset"
)

var poolName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ValidPoolName reports whether name may name a pool: 1 to 63 of a–z, 0–9, '-' and '_', beginning with a letter or digit.
func ValidPoolName(name string) bool { return poolName.MatchString(name) }

// PoolWorkflowID is the workflow ID of a pool.
func PoolWorkflowID(pool string) string { return "tempool/" + pool }

// WorkerWorkflowID is the workflow ID of the worker in a slot of a pool.
func WorkerWorkflowID(pool string, slot int) string {
	return "tempool/" + WorkerName(pool, slot)
}

// WorkerName is how people and messages name a worker: <pool>/<slot>.
func WorkerName(pool string, slot int) string { return pool + "/" + strconv.Itoa(slot) }

// ParseWorkerName splits <pool>/<slot>.
func ParseWorkerName(name string) (pool string, slot int, err error) {
	pool, number, found := strings.Cut(name, "/")
	if found && ValidPoolName(pool) {
		if slot, err = strconv.Atoi(number); err == nil && slot >= 0 {
			return pool, slot, nil
		}
	}
	return "", 0, Errorf(CodeInvalid, "%q names no worker; write POOL/SLOT, for example python/0", name)
}

// MigrateSessionWorkflowID is the workflow ID of a session's migration: one at a time.
func MigrateSessionWorkflowID(pool, session string) string {
	return PoolWorkflowID(pool) + "/sessions/migrate/" + session
}

// EvacuateWorkerWorkflowID is the workflow ID of a worker's evacuation: one at a time.
func EvacuateWorkerWorkflowID(pool string, slot int) string {
	return PoolWorkflowID(pool) + "/sessions/evacuate/" + strconv.Itoa(slot)
}

// RebalanceSessionsWorkflowID is the workflow ID of a pool's rebalancing: one at a time.
func RebalanceSessionsWorkflowID(pool string) string {
	return PoolWorkflowID(pool) + "/sessions/rebalance"
}

// PlacementQueue is the task queue that every agent with room for workers of this label polls.
func PlacementQueue(label string) string {
	if label == "" {
		label = DefaultPlacement
	}
	return "tempool/place/" + label
}

// HostQueue is the task queue of one host: all that touches its processes.
func HostQueue(hostID string) string { return "tempool/host/" + hostID }

// PoolQueue is the task queue of the activity Execute for one pool.
func PoolQueue(pool string) string { return "tempool/pool/" + pool }

// LeaseID names a lease by its three parts, which also order it: <pool>.<slot>.<incarnation>.<seq>.
func LeaseID(pool string, slot int, incarnation, seq int64) string {
	return fmt.Sprintf("%s.%d.%d.%d", pool, slot, incarnation, seq)
}

// LeaseRef is a lease ID taken apart.
type LeaseRef struct {
	Pool        string
	Slot        int
	Incarnation int64
	Seq         int64
}

// Worker names the worker the lease is on.
func (r LeaseRef) Worker() string { return WorkerName(r.Pool, r.Slot) }

// Older reports whether r was granted before o on the same worker: a higher incarnation wins, then a higher seq.
func (r LeaseRef) Older(o LeaseRef) bool {
	if r.Incarnation != o.Incarnation {
		return r.Incarnation < o.Incarnation
	}
	return r.Seq < o.Seq
}

// ParseLeaseID takes a lease ID apart; an ID of another shape is CodeLeaseNotFound.
func ParseLeaseID(id string) (LeaseRef, error) {
	parts := strings.Split(id, ".")
	if len(parts) == 4 && ValidPoolName(parts[0]) {
		slot, errSlot := strconv.Atoi(parts[1])
		incarnation, errInc := strconv.ParseInt(parts[2], 10, 64)
		seq, errSeq := strconv.ParseInt(parts[3], 10, 64)
		if errSlot == nil && errInc == nil && errSeq == nil && slot >= 0 && incarnation > 0 && seq > 0 {
			return LeaseRef{parts[0], slot, incarnation, seq}, nil
		}
	}
	return LeaseRef{}, Errorf(CodeLeaseNotFound, "%q is no lease; a lease looks like POOL.SLOT.INCARNATION.SEQ and is printed by ctl checkout", id)
}

// GatewayHolderPrefix begins the holder of every lease that a gateway keeps for its clients; the rest is its host ID. Such a
// lease is recalled when somebody else asks for the worker and nothing is in flight.
const GatewayHolderPrefix = "gateway/"
